//! What a scraper sends to `sanlock exporter`.

use crate::http_request::{HEAD_MAX, Refusal, end_of_head, parse};
use crate::page::printable;

/// Requests, and names of lockspaces as labels.
///
/// What is accepted is a path without anything that could end a line or a header; what is refused is answered with a status; the end of the head
/// is the same however much follows it; different names have different labels, in printable ASCII.
pub fn http(data: &[u8]) {
    let length = end_of_head(data);
    let head = data.get(..length.unwrap_or(data.len())).unwrap_or(data);
    assert_eq!(end_of_head(head), length);
    match parse(head) {
        Ok(request) => {
            assert!(length.is_some() && head.len() >= "GET / HTTP/1.0\r\n\r\n".len());
            assert!(
                request.path.starts_with('/') && request.path.bytes().all(|byte| byte.is_ascii_graphic())
            );
            assert!(!request.path.contains('?'));
        }
        Err(refusal) => {
            let answer = refusal.answer();
            assert!(answer.starts_with(b"HTTP/1.1 ") && answer.len() < HEAD_MAX);
            assert_ne!(refusal, Refusal::Busy);
        }
    }
    let (one, other) = data.split_at(data.len() / 2);
    assert_eq!(printable(one) == printable(other), one == other);
    assert!(printable(data).bytes().all(|byte| (b' '..=b'~').contains(&byte)));
}
