//! What Kafka does not let a workflow do holds nobody up, is said, and ends by itself once it is permitted.
//!
//! By mock brokers, which can be told to refuse one request alone. A broker with an authorizer is in `acl.rs`.

use std::time::Duration;

use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

use crate::support::embedded::{Cluster, MockBroker};
use crate::support::process::{Config, command};
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, eventually, kafka};

async fn forbidden(
    forbid: impl FnOnce(&Cluster, &str) + Send + 'static,
    permit: impl FnOnce(&Cluster, &str) + Send + 'static,
    reason: impl FnOnce(&TestDatabase) -> String,
) {
    let (topic, database, receiver) = (Topic::new(1).await, TestDatabase::new().await, TestReceiver::start().await);
    let broker = MockBroker::start();
    broker.create_topic(&topic.name, 1);
    let name = topic.name.clone();
    broker.with(move |cluster| forbid(cluster, &name));
    let mut config = Config::new(&topic, &database, &receiver);
    config.brokers.clone_from(&broker.address);
    let relay = Relay::start(&config);
    relay.ready().await;
    let shown = async |state: &str| {
        let labels = format!("state=\"{state}\"");
        eventually(&format!("it is {state}"), PATIENCE, async || {
            relay.metric("oncebox_workflow_state", &labels).await.filter(|value| *value == 1.0)
        })
        .await
    };
    shown("halted").await;
    let status = || {
        let url = format!("http://127.0.0.1:{}", relay.port);
        let output = command().args(["status", "--url", &url]).output().expect("oncebox starts");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let reason = reason(&database);
    let said = status();
    assert!(said.contains("orders: halted since") && said.contains(&reason), "{reason}: {said}");

    let name = topic.name.clone();
    broker.with(move |cluster| permit(cluster, &name));
    let producer: BaseProducer =
        kafka::client().set("bootstrap.servers", &broker.address).create().expect("a producer");
    let record: BaseRecord<'_, [u8], [u8]> = BaseRecord::to(&topic.name).payload(br#"{"id":1}"#);
    producer.send(record).unwrap_or_else(|(error, _)| panic!("it is queued: {error}"));
    producer.flush(Duration::from_secs(30)).expect("it is stored");
    eventually("it is delivered", PATIENCE, async || (receiver.applied() == 1).then_some(())).await;
    shown("running").await;
    assert!(!status().contains(&reason), "{}", status());
    assert_eq!(relay.log().matches("nothing is read until Kafka permits it").count(), 1, "said once");
}

#[tokio::test]
async fn a_group_that_is_forbidden_keeps_no_process_unready_and_is_joined_once_it_is_permitted() {
    forbidden(
        |cluster, _| {
            let no = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED; 1_000];
            cluster.request_errors(RDKafkaApiKey::JoinGroup, &no);
        },
        |cluster, _| cluster.clear_request_errors(RDKafkaApiKey::JoinGroup),
        |database| format!("Kafka forbids the group `{}.orders`", database.schema),
    )
    .await;
}

#[tokio::test]
async fn a_topic_that_is_forbidden_keeps_no_process_unready_and_is_read_once_it_is_permitted() {
    forbidden(
        |cluster, topic| {
            let no = RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED;
            cluster.topic_error(topic, no).expect("it is forbidden");
        },
        |cluster, topic| {
            let yes = RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR;
            cluster.topic_error(topic, yes).expect("it is permitted");
        },
        |_| "Kafka forbids a topic".to_owned(),
    )
    .await;
}
