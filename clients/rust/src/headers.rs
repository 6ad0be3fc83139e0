//! Values of headers. A header that came twice is never taken for one that came once.

use http::HeaderMap;

/// The values as text; one that is no printable ASCII is `None`.
pub fn values<'a>(headers: &'a HeaderMap, name: &str) -> Vec<Option<&'a str>> {
    let printable = |text: &&str| text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    headers.get_all(name).iter().map(|value| value.to_str().ok().filter(printable)).collect()
}
