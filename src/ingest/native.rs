//! The few calls into librdkafka that the safe crate lacks: header names and metadata of any bytes, and the ids of topics.
//!
//! All `unsafe` of the project is in this file. Every pointer comes from librdkafka and is used while its owner lives.
#![expect(unsafe_code, reason = "librdkafka's C interface is the only way to topic ids and raw headers")]

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr;
use std::time::Duration;

use rdkafka::TopicPartitionList;
use rdkafka::client::{Client, ClientContext};
use rdkafka::message::BorrowedMessage;
use rdkafka_sys as sys;

/// A record's headers as bytes. The safe reader panics on a name that is not UTF-8.
pub fn headers(message: &BorrowedMessage<'_>) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
    let mut found = Vec::new();
    let mut list = ptr::null_mut();
    // SAFETY: the message lives for the call, and librdkafka keeps its headers as long as the message.
    unsafe {
        if sys::rd_kafka_message_headers(message.ptr(), &raw mut list)
            != sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR
        {
            return found;
        }
        for index in 0.. {
            let (mut name, mut value, mut size) = (ptr::null::<c_char>(), ptr::null(), 0usize);
            let result = sys::rd_kafka_header_get_all(list, index, &raw mut name, &raw mut value, &raw mut size);
            if result != sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
                break;
            }
            let name = CStr::from_ptr(name).to_bytes().to_vec();
            let value = (!value.is_null()).then(|| std::slice::from_raw_parts(value.cast::<u8>(), size).to_vec());
            found.push((name, value));
        }
    }
    found
}

/// An offset that a group has committed, with what was committed along.
pub struct Committed {
    pub topic: String,
    pub partition: i32,
    pub offset: i64,
    pub metadata: Vec<u8>,
}

/// The entries of a list. The safe reader panics on metadata that is not UTF-8.
pub fn committed(list: &TopicPartitionList) -> Vec<Committed> {
    // SAFETY: the list lives for the call, has `cnt` elements, and each owns its topic's name and its metadata.
    unsafe {
        let list = &*list.ptr();
        let count = usize::try_from(list.cnt).unwrap_or(0);
        (0..count)
            .map(|at| {
                let element = &*list.elems.add(at);
                let metadata = match element.metadata.is_null() {
                    true => Vec::new(),
                    false => std::slice::from_raw_parts(element.metadata.cast::<u8>(), element.metadata_size).to_vec(),
                };
                let topic = CStr::from_ptr(element.topic).to_string_lossy().into_owned();
                Committed { topic, partition: element.partition, offset: element.offset, metadata }
            })
            .collect()
    }
}

/// A topic as the brokers describe it now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topic {
    /// The id that the broker gave this incarnation of the topic.
    pub id: String,
    pub partitions: Vec<i32>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DescribeError {
    #[error("the brokers did not answer within {0:?}")]
    NoAnswer(Duration),
    #[error("the brokers refused to describe it: {0}")]
    Refused(String),
}

/// Asks the brokers for topics by name; those that do not exist are missing from the answer.
pub fn describe_topics<C: ClientContext>(
    client: &Client<C>,
    names: &[String],
    timeout: Duration,
) -> Result<HashMap<String, Topic>, DescribeError> {
    let client = client.native_ptr();
    let texts: Vec<CString> = names.iter().filter_map(|name| CString::new(name.as_str()).ok()).collect();
    let mut pointers: Vec<*const c_char> = texts.iter().map(|text| text.as_ptr()).collect();
    let millis = c_int::try_from(timeout.as_millis()).unwrap_or(c_int::MAX);
    // SAFETY: the client outlives this call; everything made here is destroyed here; results are copied before their
    // event is destroyed.
    unsafe {
        let topics = sys::rd_kafka_TopicCollection_of_topic_names(pointers.as_mut_ptr(), pointers.len());
        let queue = sys::rd_kafka_queue_new(client);
        let options =
            sys::rd_kafka_AdminOptions_new(client, sys::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS);
        let mut message = [0 as c_char; 256];
        sys::rd_kafka_AdminOptions_set_request_timeout(options, millis, message.as_mut_ptr(), message.len());
        sys::rd_kafka_DescribeTopics(client, topics, options, queue);
        let event = sys::rd_kafka_queue_poll(queue, millis);
        let outcome = if event.is_null() { Err(DescribeError::NoAnswer(timeout)) } else { read_topics(event) };
        if !event.is_null() {
            sys::rd_kafka_event_destroy(event);
        }
        sys::rd_kafka_AdminOptions_destroy(options);
        sys::rd_kafka_queue_destroy(queue);
        sys::rd_kafka_TopicCollection_destroy(topics);
        outcome
    }
}

/// How the cluster id of librdkafka's mock cluster begins: the demo's stand-in where no broker can be had.
pub const MOCK_CLUSTER: &str = "mockCluster";

/// Topics of a mock cluster, which has no controller to describe them and never re-creates one.
pub fn mock_topics<C: ClientContext>(
    client: &Client<C>,
    names: &[String],
    timeout: Duration,
) -> Result<HashMap<String, Topic>, DescribeError> {
    let mut found = HashMap::new();
    for name in names {
        let metadata =
            client.fetch_metadata(Some(name), timeout).map_err(|error| DescribeError::Refused(error.to_string()))?;
        for topic in metadata.topics() {
            let partitions = topic.partitions().iter().map(rdkafka::metadata::MetadataPartition::id).collect();
            found.insert(topic.name().to_owned(), Topic { id: format!("mock-{}", topic.name()), partitions });
        }
    }
    Ok(found)
}

/// Whether a group may be joined, which takes a right (Read) that asking for its offsets does not. It is not joined for that. Nothing where
/// the brokers do not tell.
pub fn may_join<C: ClientContext>(
    client: &Client<C>,
    group: &str,
    timeout: Duration,
) -> Result<Option<bool>, DescribeError> {
    let client = client.native_ptr();
    let Ok(name) = CString::new(group) else { return Ok(None) };
    let mut names = [name.as_ptr()];
    let millis = c_int::try_from(timeout.as_millis()).unwrap_or(c_int::MAX);
    // SAFETY: the client outlives this call; everything made here is destroyed here; results are copied before their
    // event is destroyed.
    unsafe {
        let queue = sys::rd_kafka_queue_new(client);
        let options =
            sys::rd_kafka_AdminOptions_new(client, sys::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBECONSUMERGROUPS);
        let mut message = [0 as c_char; 256];
        sys::rd_kafka_AdminOptions_set_request_timeout(options, millis, message.as_mut_ptr(), message.len());
        let unable = sys::rd_kafka_AdminOptions_set_include_authorized_operations(options, 1);
        if !unable.is_null() {
            sys::rd_kafka_error_destroy(unable);
        }
        sys::rd_kafka_DescribeConsumerGroups(client, names.as_mut_ptr(), names.len(), options, queue);
        let event = sys::rd_kafka_queue_poll(queue, millis);
        let outcome = if event.is_null() { Err(DescribeError::NoAnswer(timeout)) } else { read_right(event) };
        if !event.is_null() {
            sys::rd_kafka_event_destroy(event);
        }
        sys::rd_kafka_AdminOptions_destroy(options);
        sys::rd_kafka_queue_destroy(queue);
        outcome
    }
}

/// Whether Read is among the rights that an answer tells of.
///
/// # Safety
/// `event` must be a living event of a DescribeConsumerGroups call for one group.
unsafe fn read_right(event: *mut sys::rd_kafka_event_t) -> Result<Option<bool>, DescribeError> {
    // SAFETY: by the caller's word; librdkafka's arrays live as long as the event.
    unsafe {
        if sys::rd_kafka_event_error(event) != sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
            let text = CStr::from_ptr(sys::rd_kafka_event_error_string(event)).to_string_lossy().into_owned();
            return Err(DescribeError::Refused(text));
        }
        let result = sys::rd_kafka_event_DescribeConsumerGroups_result(event);
        let mut count = 0usize;
        let groups = sys::rd_kafka_DescribeConsumerGroups_result_groups(result, &raw mut count);
        if count == 0 {
            return Ok(None);
        }
        let error = sys::rd_kafka_ConsumerGroupDescription_error(*groups);
        if sys::rd_kafka_error_code(error) == sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED {
            return Ok(Some(false));
        }
        if !error.is_null() && sys::rd_kafka_error_code(error) != sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
            let text = CStr::from_ptr(sys::rd_kafka_error_string(error)).to_string_lossy().into_owned();
            return Err(DescribeError::Refused(text));
        }
        let mut many = 0usize;
        let rights = sys::rd_kafka_ConsumerGroupDescription_authorized_operations(*groups, &raw mut many);
        if rights.is_null() {
            return Ok(None);
        }
        let read = sys::rd_kafka_AclOperation_t::RD_KAFKA_ACL_OPERATION_READ;
        Ok(Some((0..many).any(|at| *rights.add(at) == read)))
    }
}

/// Copies the topics out of an answer.
///
/// # Safety
/// `event` must be a living event of a DescribeTopics call.
unsafe fn read_topics(event: *mut sys::rd_kafka_event_t) -> Result<HashMap<String, Topic>, DescribeError> {
    // SAFETY: by the caller's word; librdkafka's arrays live as long as the event.
    unsafe {
        if sys::rd_kafka_event_error(event) != sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
            let text = CStr::from_ptr(sys::rd_kafka_event_error_string(event)).to_string_lossy().into_owned();
            return Err(DescribeError::Refused(text));
        }
        let result = sys::rd_kafka_event_DescribeTopics_result(event);
        let mut count = 0usize;
        let topics = sys::rd_kafka_DescribeTopics_result_topics(result, &raw mut count);
        let mut found = HashMap::new();
        for index in 0..count {
            let topic = *topics.add(index);
            let error = sys::rd_kafka_TopicDescription_error(topic);
            if !error.is_null()
                && sys::rd_kafka_error_code(error) != sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR
            {
                continue;
            }
            let name = CStr::from_ptr(sys::rd_kafka_TopicDescription_name(topic)).to_string_lossy().into_owned();
            let id = sys::rd_kafka_TopicDescription_topic_id(topic);
            let id = CStr::from_ptr(sys::rd_kafka_Uuid_base64str(id)).to_string_lossy().into_owned();
            // As Kafka's own tools write it, so that a key can be computed from what they print.
            let id =
                if crate::mutant!("topic-by-name") { name.clone() } else { id.replace('+', "-").replace('/', "_") };
            let mut partition_count = 0usize;
            let infos = sys::rd_kafka_TopicDescription_partitions(topic, &raw mut partition_count);
            let partitions =
                (0..partition_count).map(|at| sys::rd_kafka_TopicPartitionInfo_partition(*infos.add(at))).collect();
            found.insert(name, Topic { id, partitions });
        }
        Ok(found)
    }
}
