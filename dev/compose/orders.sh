#!/bin/bash
# Ten orders a second into the topic `orders`, for as long as it runs.
/opt/kafka/bin/kafka-topics.sh --bootstrap-server kafka:9092 --create --if-not-exists --topic orders --partitions 6
id=0
while sleep 0.1; do
  id=$((id + 1))
  printf '{"id": %d, "amount": %d.50}\n' "$id" $((RANDOM % 100))
done | /opt/kafka/bin/kafka-console-producer.sh --bootstrap-server kafka:9092 --topic orders
