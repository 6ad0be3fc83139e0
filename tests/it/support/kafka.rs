//! Topics and records.

use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};

use super::{services, unique};

pub fn client() -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", &services().brokers);
    config
}

pub fn admin() -> AdminClient<DefaultClientContext> {
    client().create().expect("an admin client")
}

/// A topic of a test's own.
pub struct Topic {
    pub name: String,
    /// The way to its brokers.
    client: ClientConfig,
    producer: BaseProducer,
}

impl Topic {
    pub async fn new(partitions: i32) -> Self {
        Self::named(unique("topic"), partitions, &[]).await
    }

    pub async fn named(name: String, partitions: i32, settings: &[(&str, &str)]) -> Self {
        if services().embedded {
            super::embedded::create_topic(&name, partitions);
            return Self::existing(name);
        }
        let mut topic = NewTopic::new(&name, partitions, TopicReplication::Fixed(1));
        for (key, value) in settings {
            topic = topic.set(key, value);
        }
        let results = admin().create_topics([&topic], &AdminOptions::new()).await.expect("create topic");
        results.into_iter().for_each(|result| drop(result.expect("topic is created")));
        Self::existing(name)
    }

    /// Nothing while the name is still taken by a topic that is being deleted.
    pub async fn try_named(name: &str, partitions: i32) -> Option<Self> {
        let topic = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
        let results = admin().create_topics([&topic], &AdminOptions::new()).await.ok()?;
        results.into_iter().all(|result| result.is_ok()).then(|| Self::existing(name.to_owned()))
    }

    /// At brokers of a test's own. Nothing until they make topics.
    pub async fn at(brokers: &str, name: &str, partitions: i32) -> Option<Self> {
        let mut client = client();
        client.set("bootstrap.servers", brokers);
        let admin: AdminClient<DefaultClientContext> = client.create().expect("an admin client");
        let topic = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
        let results = admin.create_topics([&topic], &AdminOptions::new()).await.ok()?;
        results.into_iter().all(|result| result.is_ok()).then(|| Self::existing_at(client, name.to_owned()))
    }

    fn existing(name: String) -> Self {
        Self::existing_at(client(), name)
    }

    fn existing_at(client: ClientConfig, name: String) -> Self {
        let producer = client
            .clone()
            .set("topic.metadata.refresh.interval.ms", "500")
            .set("linger.ms", "5")
            .set("message.max.bytes", "10000000")
            .create()
            .expect("a producer");
        Self { name, client, producer }
    }

    /// Sends one record and waits until the broker has it.
    pub fn send(&self, key: Option<&str>, value: &str) {
        self.send_raw(None, key.map(str::as_bytes), Some(value.as_bytes()), None);
        self.flush();
    }

    pub fn send_raw(
        &self,
        partition: Option<i32>,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: Option<OwnedHeaders>,
    ) {
        let mut record: BaseRecord<'_, [u8], [u8]> = BaseRecord::to(&self.name);
        record.partition = partition;
        record.key = key;
        record.payload = value;
        record.headers = headers;
        while let Err((_, unsent)) = self.producer.send(record) {
            self.producer.poll(Duration::from_millis(20));
            record = unsent;
        }
    }

    /// A header whose name is no UTF-8: the safe interface refuses it, so this goes around it.
    pub fn send_with_raw_header(&self, name: &[u8], header: &[u8], value: &[u8]) {
        super::raw::produce_with_header(self.producer.client(), &self.name, name, header, value);
        self.flush();
    }

    pub fn flush(&self) {
        self.producer.flush(Duration::from_secs(30)).expect("records are stored");
    }

    /// Orders `{"id": n, "amount": ..}` for n in the range, keyed by their number.
    pub fn send_orders(&self, range: std::ops::Range<u32>) {
        for id in range {
            let value = format!(r#"{{"id":{id},"amount":{}.50}}"#, id % 97);
            self.send_raw(None, Some(id.to_string().as_bytes()), Some(value.as_bytes()), None);
        }
        self.flush();
    }

    /// Sends orders in one transaction, and ends it so.
    pub fn transact(&self, range: std::ops::Range<u32>, commit: bool) {
        let limit = Duration::from_secs(30);
        let producer: BaseProducer = self
            .client
            .clone()
            .set("transactional.id", unique("transaction"))
            .create()
            .expect("a producer of transactions");
        producer.init_transactions(limit).expect("transactions begin");
        producer.begin_transaction().expect("a transaction begins");
        for id in range {
            let (key, value) = (id.to_string(), format!(r#"{{"id":{id}}}"#));
            producer.send(BaseRecord::to(&self.name).key(&key).payload(&value)).expect("it is queued");
        }
        producer.flush(limit).expect("records are stored");
        if commit { producer.commit_transaction(limit) } else { producer.abort_transaction(limit) }.expect("it ends");
    }

    /// A record that is as old as this.
    pub fn send_aged(&self, value: &str, age: Duration) {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
        let record: BaseRecord<'_, [u8], [u8]> =
            BaseRecord::to(&self.name).payload(value.as_bytes()).timestamp((now - age).as_millis() as i64);
        self.producer.send(record).unwrap_or_else(|(error, _)| panic!("it is queued: {error}"));
        self.flush();
    }

    fn admin(&self) -> AdminClient<DefaultClientContext> {
        self.client.create().expect("an admin client")
    }

    pub async fn grow(&self, partitions: usize) {
        let more = NewPartitions::new(&self.name, partitions);
        let results = self.admin().create_partitions([&more], &AdminOptions::new()).await.expect("create partitions");
        results.into_iter().for_each(|result| drop(result.expect("partitions are created")));
    }

    pub async fn delete(&self) {
        let results = self.admin().delete_topics(&[&self.name], &AdminOptions::new()).await.expect("delete topic");
        results.into_iter().for_each(|result| drop(result.expect("topic is deleted")));
    }
}

pub fn header<'a>(name: &'a str, value: &'a str) -> OwnedHeaders {
    OwnedHeaders::new().insert(Header { key: name, value: Some(value) })
}
