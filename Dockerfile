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
# Of newlib and libgcc only what Cortex-M links: the folders of Arm's other profiles are half of them.
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3 gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm \
    && cd /usr/lib && rm -rf arm-none-eabi/lib/arm arm-none-eabi/lib/thumb/v7 arm-none-eabi/lib/thumb/v7-[ar]* \
        arm-none-eabi/lib/thumb/v7ve* arm-none-eabi/lib/thumb/v8-a* gcc/arm-none-eabi/*/arm \
        gcc/arm-none-eabi/*/thumb/v7 gcc/arm-none-eabi/*/thumb/v7-[ar]* gcc/arm-none-eabi/*/thumb/v7ve* \
        gcc/arm-none-eabi/*/thumb/v8-a* gcc/arm-none-eabi/*/cc1plus gcc/arm-none-eabi/*/lto1 \
    && rm -rf /var/lib/apt/lists/* /usr/share/doc
COPY --from=python /opt/crtgen /opt/crtgen
ENV PATH=/opt/crtgen/bin:$PATH
WORKDIR /work
ENTRYPOINT ["crtgen"]
