//! What a user may do at a broker with an authorizer: the safe crate has no ACLs.
#![expect(unsafe_code, reason = "only librdkafka's C interface grants rights and takes them away")]

use std::ffi::{CStr, CString, c_char};
use std::ptr;

use rdkafka::client::{Client, ClientContext};
use rdkafka_sys as sys;

const LIMIT_MILLIS: i32 = 30_000;

/// One right to one thing, in Strimzi's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Right {
    /// `topic` or `group`.
    pub kind: String,
    pub name: String,
    /// `literal` or `prefix`.
    pub pattern: String,
    pub operation: String,
}

impl Right {
    /// As librdkafka has it, as a right or as what finds that right. The caller destroys it.
    fn binding(&self, user: &str, is_filter: bool) -> *mut sys::rd_kafka_AclBinding_t {
        use sys::rd_kafka_AclOperation_t as Operation;
        use sys::rd_kafka_ResourcePatternType_t as Pattern;
        use sys::rd_kafka_ResourceType_t as Kind;
        let kind = match self.kind.as_str() {
            "topic" => Kind::RD_KAFKA_RESOURCE_TOPIC,
            "group" => Kind::RD_KAFKA_RESOURCE_GROUP,
            other => panic!("a right to {other}"),
        };
        let pattern = match self.pattern.as_str() {
            "literal" => Pattern::RD_KAFKA_RESOURCE_PATTERN_LITERAL,
            "prefix" => Pattern::RD_KAFKA_RESOURCE_PATTERN_PREFIXED,
            other => panic!("a pattern of type {other}"),
        };
        let operation = match self.operation.as_str() {
            "Read" => Operation::RD_KAFKA_ACL_OPERATION_READ,
            "Describe" => Operation::RD_KAFKA_ACL_OPERATION_DESCRIBE,
            "DescribeConfigs" => Operation::RD_KAFKA_ACL_OPERATION_DESCRIBE_CONFIGS,
            other => panic!("a right to {other}"),
        };
        let new = if is_filter { sys::rd_kafka_AclBindingFilter_new } else { sys::rd_kafka_AclBinding_new };
        let [name, principal, host] = [self.name.clone(), format!("User:{user}"), "*".to_owned()]
            .map(|text| CString::new(text).expect("no zero byte"));
        let mut message = [0 as c_char; 256];
        // SAFETY: librdkafka copies the three texts, and writes no more of the message than there is room for.
        let binding = unsafe {
            new(
                kind,
                name.as_ptr(),
                pattern,
                principal.as_ptr(),
                host.as_ptr(),
                operation,
                sys::rd_kafka_AclPermissionType_t::RD_KAFKA_ACL_PERMISSION_TYPE_ALLOW,
                message.as_mut_ptr(),
                message.len(),
            )
        };
        assert!(!binding.is_null(), "{self:?} is no right");
        binding
    }
}

pub fn grant<C: ClientContext>(client: &Client<C>, user: &str, rights: &[Right]) {
    let mut bindings: Vec<_> = rights.iter().map(|right| right.binding(user, false)).collect();
    // SAFETY: client and bindings live until the answer is there; everything made here is destroyed here, the event last of what is
    // looked at.
    unsafe {
        let queue = sys::rd_kafka_queue_new(client.native_ptr());
        sys::rd_kafka_CreateAcls(client.native_ptr(), bindings.as_mut_ptr(), bindings.len(), ptr::null(), queue);
        let event = answer(queue);
        let mut count = 0usize;
        let results =
            sys::rd_kafka_CreateAcls_result_acls(sys::rd_kafka_event_CreateAcls_result(event), &raw mut count);
        assert_eq!(count, rights.len());
        for index in 0..count {
            accept(sys::rd_kafka_acl_result_error(*results.add(index)));
        }
        sys::rd_kafka_event_destroy(event);
        sys::rd_kafka_queue_destroy(queue);
        sys::rd_kafka_AclBinding_destroy_array(bindings.as_mut_ptr(), bindings.len());
    }
}

pub fn take_away<C: ClientContext>(client: &Client<C>, user: &str, right: &Right) {
    let mut filters = [right.binding(user, true)];
    // SAFETY: as above.
    unsafe {
        let queue = sys::rd_kafka_queue_new(client.native_ptr());
        sys::rd_kafka_DeleteAcls(client.native_ptr(), filters.as_mut_ptr(), filters.len(), ptr::null(), queue);
        let event = answer(queue);
        let mut count = 0usize;
        let responses =
            sys::rd_kafka_DeleteAcls_result_responses(sys::rd_kafka_event_DeleteAcls_result(event), &raw mut count);
        assert_eq!(count, 1);
        accept(sys::rd_kafka_DeleteAcls_result_response_error(*responses));
        let mut taken = 0usize;
        sys::rd_kafka_DeleteAcls_result_response_matching_acls(*responses, &raw mut taken);
        assert_eq!(taken, 1, "{right:?} was granted");
        sys::rd_kafka_event_destroy(event);
        sys::rd_kafka_queue_destroy(queue);
        sys::rd_kafka_AclBinding_destroy_array(filters.as_mut_ptr(), filters.len());
    }
}

/// The answer to what was asked, for the caller to destroy.
///
/// # Safety
/// `queue` must be a living queue.
unsafe fn answer(queue: *mut sys::rd_kafka_queue_t) -> *mut sys::rd_kafka_event_t {
    // SAFETY: by the caller's word; the text lives as long as the event.
    unsafe {
        let event = sys::rd_kafka_queue_poll(queue, LIMIT_MILLIS);
        assert!(!event.is_null(), "the broker answers");
        if sys::rd_kafka_event_error(event) != sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
            panic!("{}", CStr::from_ptr(sys::rd_kafka_event_error_string(event)).to_string_lossy());
        }
        event
    }
}

/// # Safety
/// `error` must be null or of a living event.
unsafe fn accept(error: *const sys::rd_kafka_error_t) {
    // SAFETY: by the caller's word; without an error the code says so.
    unsafe {
        if sys::rd_kafka_error_code(error) != sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
            panic!("{}", CStr::from_ptr(sys::rd_kafka_error_string(error)).to_string_lossy());
        }
    }
}
