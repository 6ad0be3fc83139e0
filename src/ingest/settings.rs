//! librdkafka's settings: the user's, and over them those that a guarantee hangs on.

use rdkafka::ClientConfig;

use crate::config::Kafka;
use crate::outbox::load::Budget;

/// Of one partition in one answer; librdkafka's own.
const MOST_OF_A_PARTITION: usize = 1 << 20;
/// The least that an answer is bound to.
const LEAST_OF_AN_ANSWER: usize = 64 << 10;

/// A client without a group: metadata, offsets, topic ids.
pub fn client(kafka: &Kafka) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("client.id", "oncebox");
    config.set("topic.metadata.refresh.interval.ms", "10000");
    for (name, value) in &kafka.properties {
        if !name.starts_with("group.") {
            config.set(name, value.expose());
        }
    }
    config.set("bootstrap.servers", &kafka.brokers);
    config.set("allow.auto.create.topics", "false");
    config.set("isolation.level", "read_committed");
    // Ours to log, not librdkafka's to print.
    config.set_log_level(rdkafka::config::RDKafkaLogLevel::Emerg);
    config
}

/// The consumer of one workflow.
pub fn consumer(kafka: &Kafka, workflow: &str, budget: &Budget) -> ClientConfig {
    let mut config = client(kafka);
    // A broker answers with at least one record, whatever its size, so that small bounds stop nobody.
    let prefetched = budget.bytes() / 4;
    let largest = kafka.properties.get("message.max.bytes").and_then(|bytes| bytes.expose().parse().ok());
    let answer = prefetched.max(largest.unwrap_or(LEAST_OF_AN_ANSWER));
    let (queued, answer, part) =
        ((prefetched / 1024).to_string(), answer.to_string(), (prefetched / 4).min(MOST_OF_A_PARTITION).to_string());
    let ours = [
        // What was read is what Postgres says, or what we mark ourselves.
        ("enable.auto.commit", "false"),
        ("enable.auto.offset.store", "false"),
        // A lost offset is an incident, never a jump: librdkafka's default is the end of the log.
        ("auto.offset.reset", "error"),
        ("enable.partition.eof", "false"),
        ("check.crcs", "true"),
        ("partition.assignment.strategy", "cooperative-sticky"),
    ];
    // Kept low, because every workflow has a consumer of its own.
    let defaults = [
        ("queued.max.messages.kbytes", queued.as_str()),
        ("fetch.max.bytes", answer.as_str()),
        // librdkafka refuses answers that are bound below this, 1 MB unless it is told; a consumer has no other use for it.
        ("message.max.bytes", answer.as_str()),
        ("fetch.message.max.bytes", part.as_str()),
        ("fetch.wait.max.ms", "100"),
        // How long a partition is left alone once enough is prefetched. With librdkafka's own second all that was prefetched is
        // used up before more is asked for.
        ("fetch.queue.backoff.ms", "20"),
        ("session.timeout.ms", "30000"),
        ("max.poll.interval.ms", "300000"),
    ];
    // `max.partition.fetch.bytes` is another name of `fetch.message.max.bytes`.
    let is_given = |name: &str| {
        kafka.properties.contains_key(name)
            || name == "fetch.message.max.bytes" && kafka.properties.contains_key("max.partition.fetch.bytes")
    };
    for (name, value) in defaults {
        if !is_given(name) {
            config.set(name, value);
        }
    }
    for (name, value) in kafka.properties.iter().filter(|(name, _)| name.starts_with("group.")) {
        config.set(name, value.expose());
    }
    for (name, value) in ours {
        config.set(name, value);
    }
    if crate::mutant!("lost-offsets-ignored") {
        config.set("auto.offset.reset", "latest");
    }
    config.set("group.id", format!("{}.{workflow}", kafka.group_prefix));
    config
}

#[cfg(test)]
mod tests {
    use rdkafka::consumer::BaseConsumer;

    use super::*;
    use crate::config::Secret;

    #[test]
    fn any_number_of_workflows_and_any_size_of_messages_makes_a_consumer() {
        for (workflows, largest) in
            [(1, None), (100, None), (2_000, None), (1, Some("50000000")), (100, Some("5000000"))]
        {
            let budget = Budget::default();
            budget.share_among(workflows);
            let property = |bytes: &str| ("message.max.bytes".to_owned(), Secret::new(bytes));
            let kafka = Kafka {
                brokers: "127.0.0.1:1".to_owned(),
                cluster: None,
                group_prefix: "g".to_owned(),
                properties: largest.into_iter().map(property).collect(),
            };
            let made = consumer(&kafka, "w", &budget).create::<BaseConsumer>();
            assert!(made.is_ok(), "{workflows} workflows, {largest:?}: {:?}", made.err());
        }
    }
}
