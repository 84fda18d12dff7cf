//! The daemon's log: lines to memory at once, to file, syslog and stderr by a thread for each (command-line.md 11).
//!
//! Logging never waits for a disk, a terminal or another program. What it costs the caller is formatting a line and two
//! locks that are held for memory operations only. A line that finds the writer's queue full is still in memory.

mod ring;
mod writer;

use std::cell::Cell;
use std::fmt::{self, Write as _};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::unistd::gettid;
use sanlock_sys::clock;

use crate::config::Config;
pub use ring::RING_BYTES;
use ring::Ring;
pub use writer::QUEUE_LINES;
use writer::{Line, Queue, Sink};

/// Bytes of a line with its newline; longer text is cut (command-line.md 11.2).
pub const LINE_BYTES: usize = 510;

/// The log file of a privileged daemon (command-line.md 11.4).
pub const LOG_FILE: &str = "/var/log/sanlock.log";

/// Priorities in use (command-line.md 11.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// To be reported.
    Error,
    /// Worth keeping.
    Warning,
    /// Everything else.
    Debug,
}

impl Level {
    /// The syslog number.
    #[must_use]
    pub const fn priority(self) -> i32 {
        match self {
            Self::Error => 3,
            Self::Warning => 4,
            Self::Debug => 7,
        }
    }
}

#[derive(Debug)]
struct Shared {
    ring: Mutex<Ring>,
    /// Lines for each place, and the highest level that goes there, by [`Level`] order.
    places: Vec<(Level, Arc<Queue>)>,
    utc: bool,
}

/// A handle to the log, with a prefix of its lines. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Log {
    shared: Arc<Shared>,
    prefix: Arc<str>,
}

impl Log {
    /// Opens the log that `config` asks for and starts the writer. A file that cannot be opened is reported in the log
    /// itself and not fatal.
    ///
    /// # Errors
    /// No thread is to be had.
    pub fn open(config: &Config, file: Option<&Path>) -> io::Result<Self> {
        let (sinks, error) =
            Sink::open(file, config.logfile_priority, config.syslog_priority, config.foreground);
        let log = Self::of(sinks, config.logfile_use_utc != 0)?;
        if let (Some(error), Some(path)) = (error, file) {
            log.warn(format_args!("log file {} is not written: {error}", path.display()));
        }
        Ok(log)
    }

    /// Starts a writer for each place.
    fn of(sinks: Vec<Sink>, utc: bool) -> io::Result<Self> {
        let dropped: fn(u64) -> Line =
            if utc { |n| dropped_line(n, true) } else { |n| dropped_line(n, false) };
        let mut places = Vec::new();
        for sink in sinks {
            let Some(highest) = sink.highest() else { continue };
            let queue = Arc::new(Queue::default());
            queue.start(sink, dropped)?;
            places.push((highest, queue));
        }
        Ok(Self::new(places, utc))
    }

    /// A log in memory only.
    #[must_use]
    pub fn in_memory() -> Self {
        Self::new(Vec::new(), true)
    }

    fn new(places: Vec<(Level, Arc<Queue>)>, utc: bool) -> Self {
        let ring = Mutex::new(Ring::new(RING_BYTES));
        Self { shared: Arc::new(Shared { ring, places, utc }), prefix: "".into() }
    }

    /// A handle whose lines begin with `prefix` and a blank (`s3`, `s3:r2`).
    #[must_use]
    pub fn with_prefix(&self, prefix: &str) -> Self {
        Self { shared: Arc::clone(&self.shared), prefix: prefix.into() }
    }

    /// Logs at priority 3.
    pub fn error(&self, text: fmt::Arguments<'_>) {
        self.write(Level::Error, text);
    }

    /// Logs at priority 4.
    pub fn warn(&self, text: fmt::Arguments<'_>) {
        self.write(Level::Warning, text);
    }

    /// Logs at priority 7.
    pub fn debug(&self, text: fmt::Arguments<'_>) {
        self.write(Level::Debug, text);
    }

    /// Logs at the given level.
    pub fn write(&self, level: Level, text: fmt::Arguments<'_>) {
        self.add(level, text, false);
    }

    /// The same of what is to be on stable storage soon: [`Log::sync`].
    pub fn write_durably(&self, level: Level, text: fmt::Arguments<'_>) {
        self.add(level, text, true);
        self.sync();
    }

    fn add(&self, level: Level, text: fmt::Arguments<'_>, durable: bool) {
        let line = format_line(self.shared.utc, &self.prefix, text);
        self.shared.ring.lock().unwrap_or_else(PoisonError::into_inner).push(line.as_bytes());
        let mut queues = self.queues_of(level).peekable();
        if queues.peek().is_none() {
            return;
        }
        let line = Line { level, text: line.into() };
        for queue in queues {
            queue.push(line.clone(), durable);
        }
    }

    /// Of the places where lines of this level go.
    fn queues_of(&self, level: Level) -> impl Iterator<Item = &Queue> {
        self.shared.places.iter().filter(move |(highest, _)| level <= *highest).map(|(_, queue)| &**queue)
    }

    /// Has the writer put everything logged so far on stable storage, as soon as it gets to it. Waits for nothing.
    pub fn sync(&self) {
        for (_, queue) in &self.shared.places {
            queue.sync();
        }
    }

    /// The text in memory, as LOG_DUMP sends it.
    #[must_use]
    pub fn dump(&self) -> Vec<u8> {
        // Where memory is short that may take its time, and whoever logs would wait for it: renewals too.
        let mut text = ring::room();
        self.shared.ring.lock().unwrap_or_else(PoisonError::into_inner).dump(&mut text);
        text
    }

    /// Lines that wait for the writer that has most of them.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.shared.places.iter().map(|(_, queue)| queue.waiting().0).max().unwrap_or(0)
    }

    /// Waits until every line so far is written, but no longer than `limit`.
    pub fn flush(&self, limit: Duration) {
        let until = Instant::now() + limit;
        for (_, queue) in &self.shared.places {
            queue.flush(until.saturating_duration_since(Instant::now()));
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        for (_, queue) in &self.places {
            queue.close();
        }
    }
}

thread_local! {
    /// Asked once: the number of a thread never changes.
    static THREAD_ID: Cell<i32> = const { Cell::new(0) };
}

fn thread_id() -> i32 {
    THREAD_ID.with(|cell| {
        if cell.get() == 0 {
            cell.set(gettid().as_raw());
        }
        cell.get()
    })
}

/// Takes text up to a number of bytes; control characters become `?`, so that no name or path can forge a line.
struct Cut {
    line: String,
    limit: usize,
}

impl fmt::Write for Cut {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // Nearly all.
        if self.line.len() + text.len() <= self.limit && text.bytes().all(|b| matches!(b, b' '..=b'~')) {
            self.line.push_str(text);
            return Ok(());
        }
        for c in text.chars() {
            if self.line.len() + c.len_utf8() > self.limit {
                return Err(fmt::Error);
            }
            self.line.push(if c.is_control() { '?' } else { c });
        }
        Ok(())
    }
}

fn format_line(utc: bool, prefix: &str, text: fmt::Arguments<'_>) -> String {
    let mut cut = Cut { line: String::with_capacity(160), limit: LINE_BYTES - 1 };
    let blank = if prefix.is_empty() { "" } else { " " };
    // An error means that the rest did not fit.
    let _ = write!(
        cut,
        "{} {} [{}]: {prefix}{blank}{text}",
        clock::civil_now(utc),
        clock::boottime_seconds(),
        thread_id()
    );
    cut.line.push('\n');
    cut.line
}

fn dropped_line(count: u64, utc: bool) -> Line {
    let text = format_line(utc, "", format_args!("dropped {count} entries"));
    Line { level: Level::Error, text: text.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(log: &Log) -> String {
        String::from_utf8(log.dump()).unwrap()
    }

    #[test]
    fn a_line_has_time_seconds_thread_prefix_and_text() {
        let log = Log::in_memory();
        log.with_prefix("s1:r2").error(format_args!("resource {}", 7));
        let line = text(&log);
        let (time, rest) = line.split_at(19);
        assert!(time.bytes().all(|b| b.is_ascii_digit() || b"-: ".contains(&b)), "{time}");
        let words: Vec<&str> = rest.split(' ').collect();
        assert!(words[1].parse::<u64>().is_ok(), "{rest}");
        assert_eq!(words[2], format!("[{}]:", gettid()));
        assert_eq!(words[3..].join(" "), "s1:r2 resource 7");
    }

    #[test]
    fn long_lines_are_cut_and_nothing_forges_a_line() {
        let log = Log::in_memory();
        log.error(format_args!("{}", "ä".repeat(1000)));
        assert!(text(&log).len() < LINE_BYTES && text(&log).len() > LINE_BYTES - 4);
        let log = Log::in_memory();
        log.error(format_args!("name a\n2026-01-01 00:00:00 1 [1]: forged\0"));
        assert!(!text(&log).contains('\n') && text(&log).ends_with("forged?"));
    }

    #[test]
    fn the_file_gets_lines_up_to_its_priority_and_memory_gets_all() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let config = Config { logfile_priority: 4, syslog_priority: -1, ..Config::default() };
        let log = Log::open(&config, Some(&path)).unwrap();
        log.error(format_args!("three"));
        log.warn(format_args!("four"));
        log.debug(format_args!("seven"));
        log.flush(Duration::from_secs(10));
        let file = std::fs::read_to_string(&path).unwrap();
        let ends: Vec<&str> = file.lines().map(|line| line.split("]: ").nth(1).unwrap()).collect();
        assert_eq!(ends, ["three", "four"]);
        assert!(text(&log).ends_with("seven"));
    }

    #[test]
    fn what_is_to_be_durable_is_written_without_waiting_for_more() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let config = Config { syslog_priority: -1, ..Config::default() };
        let log = Log::open(&config, Some(&path)).unwrap();
        let [(_, file)] = &log.shared.places[..] else { panic!("only the file") };
        for _ in 0..3 {
            log.error(format_args!("kill"));
            log.sync();
            log.sync();
            assert!(file.flush(Duration::from_secs(10)), "the writer comes to an end");
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 3);
        // Nothing is written anywhere, so nothing is to be synced.
        Log::in_memory().sync();
    }

    /// Whoever can make the daemon log must not be able to hide why a process was stopped.
    #[test]
    fn a_flood_of_lines_leaves_room_for_those_that_are_to_be_durable() {
        let stuck = Arc::new(Queue::default());
        let log = Log::new(vec![(Level::Debug, Arc::clone(&stuck))], true);
        for n in 0..QUEUE_LINES + 5 {
            log.error(format_args!("{n}"));
        }
        log.write_durably(Level::Error, format_args!("kill"));
        assert_eq!(stuck.waiting(), (QUEUE_LINES + 1, 5));
        log.error(format_args!("one more"));
        assert_eq!(stuck.waiting(), (QUEUE_LINES + 1, 6));
        for _ in 0..2 * writer::DURABLE_LINES {
            log.write_durably(Level::Error, format_args!("kill"));
        }
        assert_eq!(stuck.waiting().0, QUEUE_LINES + writer::DURABLE_LINES);
    }

    #[test]
    fn a_log_file_that_cannot_be_opened_is_no_failure() {
        let config = Config { syslog_priority: -1, ..Config::default() };
        let log = Log::open(&config, Some(Path::new("/nonexistent/dir/log"))).unwrap();
        assert!(text(&log).contains("is not written"), "{}", text(&log));
    }

    #[test]
    fn a_place_that_is_stuck_keeps_no_line_from_another_one() {
        let dir = tempfile::tempdir().unwrap();
        let (stuck, path) = (dir.path().join("stuck"), dir.path().join("log"));
        nix::unistd::mkfifo(&stuck, nix::sys::stat::Mode::S_IRWXU).unwrap();
        // There is a reader, which never reads.
        let reader = std::fs::OpenOptions::new().read(true).write(true).open(&stuck).unwrap();
        let sinks = [&stuck, &path].map(|path| Sink::open(Some(path), 7, -1, false).0);
        let log = Log::of(sinks.into_iter().flatten().collect(), true).unwrap();
        let lines = 200;
        for n in 0..lines {
            log.debug(format_args!("{n} {}", "x".repeat(LINE_BYTES)));
        }
        let written = || std::fs::read_to_string(&path).unwrap().lines().count();
        let begin = Instant::now();
        while written() < lines {
            assert!(begin.elapsed() < Duration::from_secs(60), "{} of {lines}", written());
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!log.shared.places[0].1.flush(Duration::from_millis(10)), "the pipe holds fewer");
        drop(reader);
    }

    #[test]
    fn a_stuck_writer_stops_nobody_and_what_is_dropped_is_counted() {
        // A queue that nobody empties: the writer is stuck in a write to a hung file system.
        let (stuck, other) = (Arc::new(Queue::default()), Arc::new(Queue::default()));
        let log =
            Log::new(vec![(Level::Debug, Arc::clone(&stuck)), (Level::Error, Arc::clone(&other))], true);
        let start = Instant::now();
        for n in 0..QUEUE_LINES + 5 {
            log.debug(format_args!("{n}"));
        }
        log.error(format_args!("killed"));
        assert_eq!(stuck.waiting(), (QUEUE_LINES, 6));
        assert_eq!(other.waiting(), (1, 0), "what goes elsewhere is not held up by it");
        assert_eq!(log.waiting(), QUEUE_LINES);
        log.flush(Duration::from_millis(10));
        assert!(start.elapsed() < Duration::from_secs(5));
        assert!(text(&log).ends_with("killed"));
    }
}
