# The image of TroupeMQ: the program, the libraries it is linked with, its configuration, and nothing else.
#
#   docker build -t troupemq .
#
# Folders, ports, user and environment are those of HiveMQ's image, so what mounts and sets them need not change; README.md has the variables.
# `make image` makes the same last stage from a program that is built already.

FROM rust:1.95-slim AS build
# The allocator is built with it.
RUN apt-get update && apt-get install -y --no-install-recommends make && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY . .
RUN cargo build --release --locked --bin troupemq \
 && strip -o /troupemq target/release/troupemq \
 && config/container/rootfs.sh /troupemq /rootfs

FROM scratch
LABEL org.opencontainers.image.title="TroupeMQ" \
      org.opencontainers.image.description="A clustered MQTT broker that loses nothing it acknowledged" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="0.1.0"
COPY --from=build /rootfs/ /

# The first three are for the placeholders of conf/config.xml.
ENV TROUPEMQ_CLUSTER=false \
    TROUPEMQ_CLUSTER_SECRET= \
    TROUPEMQ_EXPECTED_NODES=3 \
    PATH=/usr/local/bin

# By number, so that Kubernetes sees that it is not root. The group 0 may write data and log, and nothing else.
USER 10000:0
# `troupemq cluster status` in a container finds the node by ./data.
WORKDIR /opt/hivemq
VOLUME ["/opt/hivemq/data", "/opt/hivemq/log"]
# MQTT, WebSocket, HTTP; metrics alone and health alone, where they are configured; 7000 is for the other nodes.
EXPOSE 1883 8000 8080 9399 8889 7000
# A restart, not a leave. The default of `docker stop`, 10 s, is shorter than what a node with many clients may take: give `--time 30`.
STOPSIGNAL SIGTERM
# Liveness, as some engines kill what is unhealthy: a node that waits for its cluster must not be. `troupemq health` alone asks for readiness.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 CMD ["troupemq", "health", "--liveness"]
ENTRYPOINT ["troupemq"]
CMD ["start", "--config", "/opt/hivemq/conf/config.xml", "--data", "/opt/hivemq/data"]
