//! HTTP/1.1 server of one page (RFC 9110, RFC 9112): one request a connection, one after the other,
//! each within limits of size and time. The parser is a crate's.
use super::text::{self, Format};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// Most bytes of a request's head.
const MOST: usize = 8192;
/// Most header fields of a request.
const FIELDS: usize = 64;
/// How long a request may take to come, and its answer to go.
const TIMEOUT: Duration = Duration::from_secs(2);
const OPENMETRICS: &str = "application/openmetrics-text";
const PLAIN: &str = "text/plain; charset=utf-8";

/// Serves for as long as the process lives. `page` makes the page, or fails with a sentence.
pub(super) fn serve(listener: &TcpListener, page: impl Fn(Format) -> Result<String, String>) {
    loop {
        match listener.accept() {
            // A client that does not read the answer has no use for it.
            Ok((stream, _)) => drop(answer(stream, &page)),
            // Out of descriptors: those of others may come free.
            Err(_) => thread::sleep(Duration::from_millis(100)),
        }
    }
}

fn answer(mut stream: TcpStream, page: impl Fn(Format) -> Result<String, String>) -> io::Result<()> {
    stream.set_write_timeout(Some(TIMEOUT))?;
    let (status, kind, body, bare) = match head(&mut stream)? {
        Head::Page { bare, format } => match page(format) {
            Ok(body) => ("200 OK", content_type(format), body, bare),
            Err(sentence) => ("503 Service Unavailable", PLAIN, sentence, bare),
        },
        Head::Unknown => ("404 Not Found", PLAIN, "The metrics are at /metrics.".into(), false),
        Head::Method => ("405 Method Not Allowed", PLAIN, "Only GET and HEAD are answered.".into(), false),
        Head::Bad => ("400 Bad Request", PLAIN, "This server reads no such HTTP request.".into(), false),
    };
    let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{allow}Connection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    if !bare {
        stream.write_all(body.as_bytes())?;
    }
    stream.flush()
}

fn content_type(format: Format) -> &'static str {
    match format {
        Format::Classic => text::CONTENT_TYPE,
        Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
    }
}

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
enum Head {
    /// The page, or only its head.
    Page {
        bare: bool,
        format: Format,
    },
    Unknown,
    Method,
    Bad,
}

/// Reads the head of a request.
fn head(stream: &mut TcpStream) -> io::Result<Head> {
    let until = Instant::now() + TIMEOUT;
    let (mut bytes, mut part) = (Vec::new(), [0; 1024]);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || bytes.len() > MOST {
            return Ok(Head::Bad);
        }
        stream.set_read_timeout(Some(left))?;
        let count = stream.read(&mut part)?;
        if count == 0 {
            return Ok(Head::Bad);
        }
        bytes.extend_from_slice(&part[..count]);
        if let Some(head) = parse(&bytes) {
            return Ok(head);
        }
    }
}

/// What a request's head asks for; none while it is not complete.
fn parse(bytes: &[u8]) -> Option<Head> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(bytes) {
        Ok(httparse::Status::Partial) => None,
        Err(_) => Some(Head::Bad),
        Ok(httparse::Status::Complete(_)) => {
            let path = request.path.unwrap_or_default().split('?').next().unwrap_or_default();
            Some(match (request.method, path) {
                (Some("GET"), "/metrics") => Head::Page { bare: false, format: format(request.headers) },
                (Some("HEAD"), "/metrics") => Head::Page { bare: true, format: format(request.headers) },
                (Some("GET" | "HEAD"), _) => Head::Unknown,
                _ => Head::Method,
            })
        }
    }
}

/// OpenMetrics where the request accepts it, as Prometheus' does (RFC 9110 section 12.5.1); else the older format.
fn format(fields: &[httparse::Header<'_>]) -> Format {
    let accept = fields.iter().filter(|field| field.name.eq_ignore_ascii_case("accept"));
    let is_wanted = |value: &[u8]| String::from_utf8_lossy(value).to_ascii_lowercase().contains(OPENMETRICS);
    if accept.map(|field| field.value).any(is_wanted) { Format::OpenMetrics } else { Format::Classic }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_understood_or_refused() {
        let parsed = |text: &str| parse(text.as_bytes());
        assert_eq!(
            parsed("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"),
            Some(Head::Page { bare: false, format: Format::Classic })
        );
        let open =
            "HEAD /metrics?a=b HTTP/1.0\r\naccept: text/plain;q=0.5,Application/OpenMetrics-Text;version=1.0.0\r\n\r\n";
        assert_eq!(parsed(open), Some(Head::Page { bare: true, format: Format::OpenMetrics }));
        assert_eq!(parsed("GET / HTTP/1.1\r\n\r\n"), Some(Head::Unknown));
        assert_eq!(parsed("POST /metrics HTTP/1.1\r\n\r\n"), Some(Head::Method));
        assert_eq!(parsed("GET /metrics HTTP/1.1\r\nHost:"), None);
        assert_eq!(parsed("\x16\x03\x01 hello\r\n\r\n"), Some(Head::Bad));
        let many = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(FIELDS + 1));
        assert_eq!(parsed(&many), Some(Head::Bad));
    }
}
