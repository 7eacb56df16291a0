/*
 * The handler of faults. It keeps the state of the core in memory that a reset does not clear, reports it, and
 * restarts the board.
 *
 * Zephyr clears the fault status before it calls k_sys_fatal_error_handler, so it must be read before Zephyr's own
 * handler runs: the linker puts __wrap_z_arm_fault in front of that.
 */
#include <crt/fault.h>

#include "platform.h"

#if KERNEL_VERSION_NUMBER >= 0x30700
typedef struct arch_esf crt_frame;
#else
typedef z_arch_esf_t crt_frame;
#endif

__attribute__((section(".noinit.crt_last_fault"))) struct crt_fault crt_last_fault;

static volatile int is_read;

static void start_record(struct crt_fault *fault)
{
    const uint64_t ticks = crt_clock_ticks();
    const struct k_thread *thread = k_current_get();
    *fault = (struct crt_fault){
#ifdef CONFIG_THREAD_STACK_INFO
        .stack_bottom = (uint32_t)thread->stack_info.start,
        .stack_top = (uint32_t)(thread->stack_info.start + thread->stack_info.size),
#endif
        .ticks_per_second = crt_clock_rate(),
        .ticks_low = (uint32_t)ticks,
        .ticks_high = (uint32_t)(ticks >> 32),
    };
    (void)thread;
}

void __real_z_arm_fault(uint32_t msp, uint32_t psp, uint32_t exc_return, const uint32_t *callee);
void __wrap_z_arm_fault(uint32_t msp, uint32_t psp, uint32_t exc_return, const uint32_t *callee);

/* `callee` are r4 to r11, if Zephyr was told to store them. */
void __wrap_z_arm_fault(uint32_t msp, uint32_t psp, uint32_t exc_return, const uint32_t *callee)
{
    static const uint32_t unknown[8];
    start_record(&crt_last_fault);
    crt_fault_read(&crt_last_fault, IS_ENABLED(CONFIG_EXTRA_EXCEPTION_INFO) ? callee : unknown,
                   (exc_return & 4u) != 0 ? psp : msp, exc_return);
    is_read = 1;
    __real_z_arm_fault(msp, psp, exc_return, callee);
}

#ifdef CONFIG_CRTGEN_WATCHDOG
#define NMI 2u
#define TO_THREAD 0xFFFFFFFDu /* EXC_RETURN: to a thread, with a frame of integer registers */

void crt_no_progress(void)
{
    static const uint32_t unknown[8];
    struct crt_fault *fault = &crt_last_fault;
    uint32_t psp;
    __asm volatile("mrs %0, psp" : "=r"(psp));
    (void)irq_lock();
    start_record(fault);
    crt_fault_read(fault, unknown, psp, TO_THREAD);
    fault->exception = NMI; /* NMI is the watchdog's, whatever its interrupt is on this chip */
    crt_fault_seal(fault);
    crt_report(fault);
    sys_reboot(SYS_REBOOT_COLD);
}
#endif

/* A fault that software found has no fault registers: there is only the frame. */
void k_sys_fatal_error_handler(unsigned int reason, const crt_frame *frame)
{
    struct crt_fault *fault = &crt_last_fault;
    (void)irq_lock();
    if (!is_read) {
        start_record(fault);
        if (frame != NULL) {
            fault->pc = frame->basic.pc;
            fault->lr = frame->basic.lr;
            fault->xpsr = frame->basic.xpsr;
            fault->sp = (uint32_t)frame + sizeof frame->basic;
        }
    }
    (void)reason;
    crt_fault_seal(fault);
    crt_report(fault);
    sys_reboot(SYS_REBOOT_COLD);
}
