# The image: a build with everything that it needs, and an image with nothing but the binary, the libraries that it is linked with and the
# CAs' certificates. No shell and no package manager is in it: nothing here or in the chart needs one.
#
#   docker build --tag oncebox .
#
# OpenSSL, librdkafka, zlib and zstd are built into the binary (`ssl-vendored`, `libz-static`): it is linked with glibc and libgcc only,
# which are taken from where it was built, so that they fit. That makes it like Google's distroless cc image for Debian 12, without another
# image to trust and to follow.
#
# Pinned: every crate, by Cargo.lock and its checksums, with the C sources in them, and the version of Rust, by the tag below. Not pinned: what
# that tag stands for. It moves with Debian's updates, and the C compiler, glibc, libgcc and the CAs' certificates with it. For an image that
# can be built again bit for bit, pin that too, and give the time:
#   docker build --build-arg BUILD_IMAGE=rust:1.95-bookworm@sha256:.. --build-arg SOURCE_DATE_EPOCH="$(git log -1 --format=%ct)" \
#     --build-arg REVISION="$(git rev-parse HEAD)" --output type=image,rewrite-timestamp=true --tag oncebox .
ARG BUILD_IMAGE=rust:1.95-bookworm

FROM ${BUILD_IMAGE} AS build
# OpenSSL writes the time of its build into itself.
ARG SOURCE_DATE_EPOCH=0
ENV SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH} CARGO_INCREMENTAL=0 CARGO_TARGET_DIR=/build
WORKDIR /src
COPY . .
# What `oncebox --version` says it was built from.
ARG REVISION=""
ENV ONCEBOX_COMMIT=${REVISION}
# Caches are no part of any layer. What is in them does not change what is built: Cargo.lock and the compiler do. A build for another platform
# has others, because both would write to the same paths, and a second one for the same platform waits.
ARG TARGETPLATFORM
RUN --mount=type=cache,id=oncebox-registry-${TARGETPLATFORM},target=/usr/local/cargo/registry,sharing=locked \
    --mount=type=cache,id=oncebox-build-${TARGETPLATFORM},target=/build,sharing=locked \
    cargo build --locked --release --package oncebox --bin oncebox && cp /build/release/oncebox /oncebox && dev/notices.sh >/NOTICES
# Starts it in there too, as the user that it will be.
RUN dev/image-tree.sh /oncebox /image

FROM scratch
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="oncebox" \
      org.opencontainers.image.description="Delivers Kafka events to HTTP endpoints under the guarantee each workflow asks for" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /image /
# Of the crates, and of the C in them. What is Debian's has its own beside it.
COPY --from=build /NOTICES /usr/share/doc/oncebox/NOTICES
ENV PATH=/usr/local/bin
# By number, so that Kubernetes sees that it is not root. It writes nothing: the file system may be read-only.
USER 65532:65532
WORKDIR /
EXPOSE 9464
# SIGTERM finishes what is under way, for `shutdownGrace` at most.
STOPSIGNAL SIGTERM
ENTRYPOINT ["oncebox"]
CMD ["run", "--config", "/etc/oncebox"]
