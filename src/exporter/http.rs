//! As much of HTTP/1.1 (RFC 9112) as a scraper needs: GET and HEAD without a body, one request per connection.
//!
//! Strict, because everything here may be hostile: what is not exactly a request of that kind is refused, and nothing is guessed.

use super::page::Format;

/// Bytes of request line and header fields.
pub(crate) const HEAD_MAX: usize = 8 * 1024;
/// Header fields.
const FIELDS_MAX: usize = 64;

/// A request that can be answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    /// HEAD: only the head of the answer is wanted.
    pub(crate) head_only: bool,
    /// Without query.
    pub(crate) path: String,
    /// What it can read.
    pub(crate) format: Format,
}

/// Why a request is refused. Each is a status of HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Not HTTP, or not in the form that it must have.
    Malformed,
    /// Another path.
    NotFound,
    /// Another method.
    Method,
    /// The request did not come in time.
    Timeout,
    /// More than [`HEAD_MAX`] bytes, or more fields than the limit.
    TooLarge,
    /// Too many connections.
    Busy,
    /// Another version of HTTP.
    Version,
}

impl Refusal {
    const fn status(self) -> &'static str {
        match self {
            Self::Malformed => "400 Bad Request",
            Self::NotFound => "404 Not Found",
            Self::Method => "405 Method Not Allowed",
            Self::Timeout => "408 Request Timeout",
            Self::TooLarge => "431 Request Header Fields Too Large",
            Self::Busy => "503 Service Unavailable",
            Self::Version => "505 HTTP Version Not Supported",
        }
    }

    /// The whole answer.
    pub(crate) fn answer(self) -> Vec<u8> {
        let status = self.status();
        let allow = if self == Self::Method { "Allow: GET, HEAD\r\n" } else { "" };
        answer(status, allow, "text/plain; charset=utf-8", &format!("{status}\n"), false)
    }
}

/// The answer 200.
pub(crate) fn success(content_type: &str, body: &str, head_only: bool) -> Vec<u8> {
    answer("200 OK", "", content_type, body, head_only)
}

fn answer(status: &str, extra: &str, content_type: &str, body: &str, head_only: bool) -> Vec<u8> {
    let length = body.len();
    let mut text = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n{extra}\
         Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
    );
    if !head_only {
        text.push_str(body);
    }
    text.into_bytes()
}

/// Whether the head is complete: its length with the empty line.
pub(crate) fn end_of_head(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4)
}

/// Reads a complete head.
///
/// # Errors
/// It is not a request that is answered here.
pub(crate) fn parse(head: &[u8]) -> Result<Request, Refusal> {
    let text = std::str::from_utf8(head).map_err(|_| Refusal::Malformed)?;
    let text = text.strip_suffix("\r\n\r\n").ok_or(Refusal::Malformed)?;
    let mut lines = text.split("\r\n");
    let (method, target, minor) = request_line(lines.next().unwrap_or_default())?;
    let (mut hosts, mut format, mut fields) = (0, Format::Text, 0);
    for line in lines {
        fields += 1;
        if fields > FIELDS_MAX {
            return Err(Refusal::TooLarge);
        }
        let (name, value) = field(line)?;
        match name.to_ascii_lowercase().as_str() {
            "host" => hosts += 1,
            // There is no body that anybody would read.
            "content-length" if value != "0" => return Err(Refusal::Malformed),
            "transfer-encoding" | "upgrade" | "expect" => return Err(Refusal::Malformed),
            "accept" if Format::accepted(value) == Format::OpenMetrics => format = Format::OpenMetrics,
            _ => {}
        }
    }
    if hosts > 1 || (minor == 1 && hosts == 0) {
        return Err(Refusal::Malformed);
    }
    let head_only = match method {
        "GET" => false,
        "HEAD" => true,
        _ => return Err(Refusal::Method),
    };
    let path = target.split('?').next().unwrap_or_default().to_owned();
    Ok(Request { head_only, path, format })
}

/// Method, target and minor version.
fn request_line(line: &str) -> Result<(&str, &str, u8), Refusal> {
    let mut words = line.split(' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(Refusal::Malformed);
    };
    let token = !method.is_empty() && method.bytes().all(is_token);
    let visible = target.starts_with('/') && target.bytes().all(|byte| byte.is_ascii_graphic());
    if !token || !visible {
        return Err(Refusal::Malformed);
    }
    match version {
        "HTTP/1.0" => Ok((method, target, 0)),
        "HTTP/1.1" => Ok((method, target, 1)),
        other if other.starts_with("HTTP/") => Err(Refusal::Version),
        _ => Err(Refusal::Malformed),
    }
}

/// Name and value. A line that goes on with the one before is not accepted (RFC 9112, 5.2).
fn field(line: &str) -> Result<(&str, &str), Refusal> {
    let (name, value) = line.split_once(':').ok_or(Refusal::Malformed)?;
    let value = value.trim_matches([' ', '\t']);
    let clean = value.bytes().all(|byte| byte == b'\t' || !byte.is_ascii_control());
    if name.is_empty() || !name.bytes().all(is_token) || !clean {
        return Err(Refusal::Malformed);
    }
    Ok((name, value))
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\nAccept: text/plain\r\n\r\n";

    #[test]
    fn requests_of_scrapers() {
        let expected = Request { head_only: false, path: "/metrics".to_owned(), format: Format::Text };
        assert_eq!(parse(GOOD.as_bytes()), Ok(expected.clone()));
        assert_eq!(parse(b"GET /metrics HTTP/1.0\r\n\r\n"), Ok(expected.clone()));
        let open = GOOD.replace("text/plain", "application/openmetrics-text; version=1.0.0");
        let open = open.replace("GET", "HEAD").replace("Accept", "aCCEPT");
        let wanted = Request { head_only: true, format: Format::OpenMetrics, ..expected };
        assert_eq!(parse(open.as_bytes()), Ok(wanted));
        assert_eq!(end_of_head(GOOD.as_bytes()), Some(GOOD.len()));
        assert_eq!(end_of_head(b"GET / HTTP/1.1\r\n"), None);
    }

    #[test]
    fn everything_else_is_refused() {
        for (from, to, refusal) in [
            ("GET", "POST", Refusal::Method),
            ("HTTP/1.1", "HTTP/2.0", Refusal::Version),
            ("HTTP/1.1", "HTTP/1.1 ", Refusal::Malformed),
            ("HTTP/1.1", "FTP/1.1", Refusal::Malformed),
            ("GET ", "GET  ", Refusal::Malformed),
            ("GET", "G\u{e4}T", Refusal::Malformed),
            ("GET", "", Refusal::Malformed),
            ("/metrics", "http://a/metrics", Refusal::Malformed),
            ("/metrics", "/me\ttrics", Refusal::Malformed),
            ("Host: a", "Host : a", Refusal::Malformed),
            ("Host: a", "Host: a\r\nHost: b", Refusal::Malformed),
            ("Host: a\r\n", "", Refusal::Malformed),
            ("Host: a", "Host: a\nX: y", Refusal::Malformed),
            ("Host: a", "Host: a\0", Refusal::Malformed),
            ("Host: a", "Host: a\r\n folded", Refusal::Malformed),
            ("Accept:", "Accept", Refusal::Malformed),
            ("Accept: text/plain", "Content-Length: 5", Refusal::Malformed),
            ("Accept: text/plain", "Transfer-Encoding: chunked", Refusal::Malformed),
            ("\r\n\r\n", "\r\n", Refusal::Malformed),
        ] {
            let text = GOOD.replacen(from, to, 1);
            assert_ne!(text, GOOD);
            assert_eq!(parse(text.as_bytes()), Err(refusal), "{text:?}");
        }
        let many = GOOD.replace("Accept: text/plain", &"X: y\r\n".repeat(FIELDS_MAX));
        assert!(parse(many.as_bytes()).is_err());
        assert_eq!(parse(b"\xff\xfe\r\n\r\n"), Err(Refusal::Malformed));
        assert_eq!(parse(b""), Err(Refusal::Malformed));
    }

    #[test]
    fn answers_have_their_length_and_end_the_connection() {
        let text = String::from_utf8(success("text/plain", "abc", false)).unwrap();
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("\r\n\r\nabc"));
        assert!(text.contains("Content-Length: 3\r\n") && text.contains("Connection: close\r\n"));
        assert!(String::from_utf8(success("text/plain", "abc", true)).unwrap().ends_with("\r\n\r\n"));
        let refused = String::from_utf8(Refusal::Method.answer()).unwrap();
        assert!(refused.starts_with("HTTP/1.1 405 ") && refused.contains("Allow: GET, HEAD\r\n"));
    }
}
