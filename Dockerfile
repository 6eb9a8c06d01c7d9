# The labelling page in a container: compose.yaml starts it, docs/docker.md explains it.
FROM python:3.13-slim

COPY . /tmp/tailwise
RUN pip install --no-cache-dir -c /tmp/tailwise/constraints.txt "/tmp/tailwise[web,tables]" \
    && rm -rf /tmp/tailwise \
    && useradd --uid 1000 --create-home tailwise \
    && install -d -o tailwise /data

USER 1000
WORKDIR /data
VOLUME /data
EXPOSE 8765
STOPSIGNAL SIGINT
ENTRYPOINT ["tailwise"]
CMD ["label", "campaign", "--host", "0.0.0.0", "--port", "8765", "--no-open"]
