//! A record that the safe producer refuses to make: its header's name is no UTF-8.
#![expect(unsafe_code, reason = "only librdkafka's C interface takes a header name of any bytes")]

use std::ffi::CString;
use std::ptr;

use rdkafka::client::{Client, ClientContext};
use rdkafka_sys as sys;

pub fn produce_with_header<C: ClientContext>(
    client: &Client<C>,
    topic: &str,
    name: &[u8],
    header: &[u8],
    value: &[u8],
) {
    let topic = CString::new(topic).unwrap();
    // SAFETY: librdkafka copies name, header and value (RD_KAFKA_MSG_F_COPY) before the calls return, and owns the
    // headers once the record is taken.
    unsafe {
        let handle = sys::rd_kafka_topic_new(client.native_ptr(), topic.as_ptr(), ptr::null_mut());
        let headers = sys::rd_kafka_headers_new(1);
        sys::rd_kafka_header_add(
            headers,
            name.as_ptr().cast(),
            name.len() as isize,
            header.as_ptr().cast(),
            header.len() as isize,
        );
        let mut fields: [sys::rd_kafka_vu_t; 4] = std::mem::zeroed();
        fields[0].vtype = sys::rd_kafka_vtype_t::RD_KAFKA_VTYPE_RKT;
        fields[0].u.rkt = handle;
        fields[1].vtype = sys::rd_kafka_vtype_t::RD_KAFKA_VTYPE_VALUE;
        fields[1].u.mem =
            sys::rd_kafka_vu_s__bindgen_ty_1__bindgen_ty_1 { ptr: value.as_ptr().cast_mut().cast(), size: value.len() };
        fields[2].vtype = sys::rd_kafka_vtype_t::RD_KAFKA_VTYPE_MSGFLAGS;
        fields[2].u.i = sys::RD_KAFKA_MSG_F_COPY;
        fields[3].vtype = sys::rd_kafka_vtype_t::RD_KAFKA_VTYPE_HEADERS;
        fields[3].u.headers = headers;
        let error = sys::rd_kafka_produceva(client.native_ptr(), fields.as_ptr(), fields.len());
        assert!(error.is_null(), "the record is taken");
        sys::rd_kafka_topic_destroy(handle);
    }
}
