//! Listening for scrapers. Whatever they do, they cost a bounded number of threads for a bounded time, and the daemon hears nothing of it.

use super::http::{self, HEAD_MAX, Refusal};
use super::page::Format;
use crate::cli::exporter::Listen;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Connections at a time, over all addresses.
pub(crate) const CONNECTIONS_MAX: usize = 32;
/// For a whole request to arrive.
const REQUEST_LIMIT: Duration = Duration::from_secs(5);
/// For a whole answer to be taken.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// How long a client that is refused may go on sending, so that it sees the answer.
const FAREWELL_LIMIT: Duration = Duration::from_secs(1);
/// Stack of a thread.
const STACK: usize = 256 * 1024;
/// Pause after `accept` failed, for want of descriptors for instance.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

const FRONT_PAGE: &str = "sanlock exporter: the metrics are at /metrics\n";

/// Makes the metrics.
pub(crate) trait Source: Send + Sync + 'static {
    /// Their text, in bounded time.
    fn metrics(&self, format: Format) -> String;
}

/// What a stream of either kind can do.
trait Stream: Read + Write + Send + 'static {
    fn limit(&self, limit: Duration) -> io::Result<()>;
    fn finish(&self) -> io::Result<()>;
}

impl Stream for TcpStream {
    fn limit(&self, limit: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(limit)).and_then(|()| self.set_write_timeout(Some(limit)))
    }

    fn finish(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

impl Stream for UnixStream {
    fn limit(&self, limit: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(limit)).and_then(|()| self.set_write_timeout(Some(limit)))
    }

    fn finish(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

/// A bound address.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    /// Binds an address. A unix socket that nobody listens on any more is replaced.
    ///
    /// # Errors
    /// As `bind`; `AddrInUse` too where a file that is no socket has the name.
    pub(crate) fn bind(listen: &Listen) -> io::Result<Self> {
        match listen {
            Listen::Tcp(address) => TcpListener::bind(address).map(Self::Tcp),
            Listen::Unix(path) => {
                remove_stale(path)?;
                let listener = UnixListener::bind(path)?;
                std::fs::set_permissions(path, PermissionsExt::from_mode(0o660))?;
                Ok(Self::Unix(listener))
            }
        }
    }

    /// Where it listens: with the port that the system chose, if port 0 was asked for.
    pub(crate) fn address(&self) -> String {
        match self {
            Self::Tcp(listener) => listener
                .local_addr()
                .map_or_else(|error| error.to_string(), |at| format!("http://{at}/metrics")),
            Self::Unix(listener) => {
                let at = listener.local_addr();
                let path = at.as_ref().ok().and_then(|at| at.as_pathname());
                path.map_or_else(String::new, |path| format!("unix:{}", path.display()))
            }
        }
    }

    /// Serves for ever.
    pub(crate) fn serve(&self, source: &Arc<impl Source>, open: &Arc<AtomicUsize>) {
        loop {
            let accepted = match self {
                Self::Tcp(listener) => listener.accept().map(|(stream, _)| hand_over(stream, source, open)),
                Self::Unix(listener) => listener.accept().map(|(stream, _)| hand_over(stream, source, open)),
            };
            if accepted.is_err() {
                std::thread::sleep(ACCEPT_PAUSE);
            }
        }
    }
}

fn remove_stale(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(found) if !found.file_type().is_socket() => Err(ErrorKind::AddrInUse.into()),
        Ok(_) => match UnixStream::connect(path) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => std::fs::remove_file(path),
            Ok(_) => Err(ErrorKind::AddrInUse.into()),
            Err(error) => Err(error),
        },
    }
}

/// One of the connections that there may be; gives its place back when dropped.
struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Serves a connection on a thread of its own; one too many is told so at once.
fn hand_over<S: Stream>(mut stream: S, source: &Arc<impl Source>, open: &Arc<AtomicUsize>) {
    let taken = open.fetch_add(1, Ordering::AcqRel);
    let place = Place(Arc::clone(open));
    if taken >= CONNECTIONS_MAX {
        // It fits into an empty send buffer; a client for whom it does not learns nothing.
        if stream.limit(Duration::from_millis(1)).is_ok() {
            let _ = stream.write(&Refusal::Busy.answer());
        }
        return;
    }
    let source = Arc::clone(source);
    // Without a thread the connection is closed.
    let _ =
        std::thread::Builder::new().name("exporter-scrape".to_owned()).stack_size(STACK).spawn(move || {
            let _place = place;
            // A client that has gone away needs no answer.
            let _ = converse(&mut stream, &*source);
        });
}

fn converse(stream: &mut impl Stream, source: &impl Source) -> io::Result<()> {
    let request = read_head(stream).and_then(|head| http::parse(&head));
    let answer = match request {
        Ok(request) => match request.path.as_str() {
            "/metrics" => {
                let text = source.metrics(request.format);
                http::success(request.format.content_type(), &text, request.head_only)
            }
            "/" => http::success("text/plain; charset=utf-8", FRONT_PAGE, request.head_only),
            _ => Refusal::NotFound.answer(),
        },
        Err(refusal) => refusal.answer(),
    };
    let end = Instant::now() + ANSWER_LIMIT;
    let mut rest = answer.as_slice();
    while !rest.is_empty() {
        stream.limit(left(end)?)?;
        let sent = stream.write(rest)?;
        if sent == 0 {
            return Err(ErrorKind::WriteZero.into());
        }
        rest = rest.get(sent..).unwrap_or(&[]);
    }
    farewell(stream)
}

/// Bytes that were not read would make the kernel reset the connection, and the answer could be lost.
fn farewell(stream: &mut impl Stream) -> io::Result<()> {
    stream.finish()?;
    let end = Instant::now() + FAREWELL_LIMIT;
    let mut dropped = [0; 1024];
    loop {
        stream.limit(left(end)?)?;
        if stream.read(&mut dropped)? == 0 {
            return Ok(());
        }
    }
}

fn left(end: Instant) -> io::Result<Duration> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

fn read_head(stream: &mut impl Stream) -> Result<Vec<u8>, Refusal> {
    let end = Instant::now() + REQUEST_LIMIT;
    let (mut head, mut chunk) = (Vec::new(), [0; 2048]);
    loop {
        let limit = left(end).map_err(|_| Refusal::Timeout)?;
        stream.limit(limit).map_err(|_| Refusal::Malformed)?;
        let got = match stream.read(&mut chunk) {
            Ok(0) => return Err(Refusal::Malformed),
            Ok(got) => got,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()) => {
                return Err(Refusal::Timeout);
            }
            Err(_) => return Err(Refusal::Malformed),
        };
        head.extend_from_slice(chunk.get(..got).unwrap_or(&[]));
        match http::end_of_head(&head) {
            Some(length) if length <= HEAD_MAX => {
                head.truncate(length);
                return Ok(head);
            }
            None if head.len() < HEAD_MAX => {}
            _ => return Err(Refusal::TooLarge),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed;

    impl Source for Fixed {
        fn metrics(&self, _: Format) -> String {
            "sanlock_up 1\n".to_owned()
        }
    }

    /// The listener's thread ends with the test's process.
    fn start(dir: &tempfile::TempDir) -> std::path::PathBuf {
        let path = dir.path().join("s");
        let listener = Listener::bind(&Listen::Unix(path.clone())).unwrap();
        let open = Arc::new(AtomicUsize::new(0));
        std::thread::spawn(move || listener.serve(&Arc::new(Fixed), &open));
        path
    }

    fn ask(path: &Path, request: &[u8]) -> String {
        let mut stream = UnixStream::connect(path).unwrap();
        // Refused before all of it was sent: the answer counts.
        let _ = stream.write_all(request);
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    #[test]
    fn a_scraper_is_answered_and_nonsense_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = start(&dir);
        let good = ask(&path, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(good.starts_with("HTTP/1.1 200 ") && good.ends_with("\r\n\r\nsanlock_up 1\n"), "{good}");
        assert!(ask(&path, b"GET / HTTP/1.0\r\n\r\n").ends_with(FRONT_PAGE));
        assert!(ask(&path, b"GET /x HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 404 "));
        assert!(ask(&path, b"\r\n\r\n").starts_with("HTTP/1.1 400 "));
        let long = [b"GET /metrics HTTP/1.1\r\nX: ".as_slice(), &[b'a'; HEAD_MAX]].concat();
        assert!(ask(&path, &long).starts_with("HTTP/1.1 431 "));
    }

    #[test]
    fn many_that_say_nothing_keep_nobody_out_for_long() {
        let dir = tempfile::tempdir().unwrap();
        let path = start(&dir);
        let silent: Vec<UnixStream> =
            (0..CONNECTIONS_MAX).map(|_| UnixStream::connect(&path).unwrap()).collect();
        let answer = || ask(&path, b"GET /metrics HTTP/1.0\r\n\r\n");
        let end = Instant::now() + 12 * REQUEST_LIMIT;
        let mut refused = false;
        loop {
            let text = answer();
            if text.starts_with("HTTP/1.1 200 ") && refused {
                break;
            }
            refused |= text.starts_with("HTTP/1.1 503 ");
            assert!(Instant::now() < end, "nobody gave up: {text}");
            std::thread::sleep(Duration::from_millis(100));
        }
        drop(silent);
    }

    #[test]
    fn a_socket_in_use_or_another_file_is_not_replaced_but_a_stale_one_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = start(&dir);
        let bind = |path: &Path| Listener::bind(&Listen::Unix(path.to_owned())).map_err(|e| e.kind());
        assert_eq!(bind(&path).unwrap_err(), ErrorKind::AddrInUse);
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert_eq!(bind(&file).unwrap_err(), ErrorKind::AddrInUse);
        let stale = dir.path().join("stale");
        drop(UnixListener::bind(&stale).unwrap());
        assert!(bind(&stale).is_ok());
    }
}
