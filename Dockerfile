# crtgen with the Arm compiler and QEMU. docker build -t crtgen . && docker run --rm -v "$PWD:/work" crtgen fit kws.tflite
FROM debian:13-slim AS wheel
RUN apt-get update && apt-get install -y --no-install-recommends python3 python3-venv && python3 -m venv /build
COPY . /src
RUN /build/bin/pip install --no-cache-dir build==1.3.0 && /build/bin/python -m build --wheel --outdir /dist /src

FROM debian:13-slim AS python
RUN apt-get update && apt-get install -y --no-install-recommends python3 python3-venv && python3 -m venv /opt/crtgen
COPY --from=wheel /dist /dist
RUN /opt/crtgen/bin/pip install --no-cache-dir /dist/*.whl && rm -r /opt/crtgen/lib/python3*/site-packages/pip*

FROM debian:13-slim
# Of newlib and libgcc only what crtgen links: Cortex-M with floats in registers or without an FPU. Other profiles of Arm,
# floats in integer registers and pointer authentication are two thirds of them.
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3 gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm \
    && cd /usr/lib && for d in arm-none-eabi/lib gcc/arm-none-eabi/*; do \
        rm -rf $d/*.a $d/arm $d/thumb/nofp $d/thumb/v7 $d/thumb/v7+fp $d/thumb/v7-[ar]* $d/thumb/v7ve* $d/thumb/v8-a* \
            $d/thumb/v8.1-m.main+* $d/thumb/*/softfp $d/plugin $d/cc1plus $d/lto1; done \
    && rm -rf /usr/bin/arm-none-eabi-lto-dump* /usr/bin/qemu-system-aarch64 \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /usr/share/doc
COPY --from=python /opt/crtgen /opt/crtgen
ENV PATH=/opt/crtgen/bin:$PATH
WORKDIR /work
ENTRYPOINT ["crtgen"]
