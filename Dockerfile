# The kernel with its usual extras and the papers, on the CPU: docker build -t robo-rl . && docker run --rm robo-rl doctor
FROM python:3.11-slim-bookworm

RUN apt-get update \
    && apt-get install -y --no-install-recommends git libegl1 libgl1 libgles2 libosmesa6 libgl1-mesa-dri libseccomp2 \
    && rm -rf /var/lib/apt/lists/*

COPY . /opt/robo-rl
WORKDIR /opt/robo-rl
RUN ./scripts/setup
ENV PATH="/opt/robo-rl/.venv/bin:$PATH"

# runs, datasets and modules of your own are looked for in the folder of the command
WORKDIR /work
ENTRYPOINT ["robo-rl"]
CMD ["--help"]
