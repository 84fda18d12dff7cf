//! `sanlock exporter`: what the daemon says of itself, as metrics for Prometheus (docs/guide/monitoring.md).
//!
//! A process of its own that only looks, through the daemon's socket: the daemon opens no port and does nothing but answer a few
//! questions from memory, at most once a second, however many scrapers there are and whatever they do.

mod http;
mod metrics;
mod page;
mod renewals;
mod scrape;
mod server;
mod textfile;

use crate::cli::exporter::{DEFAULT_LISTEN, ExporterArgs, Listen};
use crate::output::{FAILURE, SUCCESS, note, print};
use page::Format;
use sanlock_client::Client;
use scrape::{Collector, Scrape};
use server::{Listener, Source};
use std::path::Path;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const ACTION: &str = "exporter";
/// The daemon is not asked more often.
const FRESH: Duration = Duration::from_secs(1);

/// Carries out the command. Returns after `--once`, and when nothing can be listened on.
pub(crate) fn run(args: &ExporterArgs) -> u8 {
    let client = Client::new();
    let collector = Collector::new(client.clone(), Duration::from_secs(args.timeout.into()), args.once);
    let exporter = Arc::new(Exporter::new(collector, client.socket_path()));
    if args.once {
        let scrape = exporter.scrape();
        print(metrics::text(&scrape, Format::Text));
        return if scrape.up { SUCCESS } else { FAILURE };
    }
    let listeners = match listeners(args) {
        Ok(listeners) => listeners,
        Err(text) => {
            note(ACTION, &text);
            return FAILURE;
        }
    };
    let open = Arc::new(AtomicUsize::new(0));
    let mut threads = Vec::new();
    for listener in listeners {
        note(ACTION, &format!("serving {}", listener.address()));
        let (exporter, open) = (Arc::clone(&exporter), Arc::clone(&open));
        let name = std::thread::Builder::new().name("exporter-listen".to_owned());
        match name.spawn(move || listener.serve(&exporter, &open)) {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                note(
                    ACTION,
                    &format!(
                        "no thread can be started: {error}; check the limits of processes (ulimit -u, TasksMax of the unit)"
                    ),
                );
                return FAILURE;
            }
        }
    }
    if let Some(path) = &args.textfile {
        write_for_ever(&exporter, path, Duration::from_secs(args.interval.into()));
    }
    for thread in threads {
        // It never ends by itself.
        let _ = thread.join();
    }
    FAILURE
}

/// All addresses, bound; or what is wrong with one.
fn listeners(args: &ExporterArgs) -> Result<Vec<Listener>, String> {
    let mut wanted = args.listen.clone();
    if wanted.is_empty() && args.textfile.is_none() {
        wanted.extend(DEFAULT_LISTEN.parse().map(Listen::Tcp));
    }
    let bind = |listen: &Listen| {
        Listener::bind(listen).map_err(|error| {
            let address = match listen {
                Listen::Tcp(address) => address.to_string(),
                Listen::Unix(path) => path.display().to_string(),
            };
            format!("cannot listen on {address}: {error}; give another address with --listen")
        })
    };
    wanted.iter().map(bind).collect()
}

/// Writes the file again and again. A failure is said once, until it is over.
fn write_for_ever(exporter: &Exporter, path: &Path, interval: Duration) {
    let mut failing = false;
    loop {
        let written = textfile::replace(path, &exporter.metrics(Format::Text));
        match &written {
            Err(error) if !failing => {
                let shown = path.display();
                note(
                    ACTION,
                    &format!(
                        "cannot write {shown}: {error}; let this user write that directory; it is tried again"
                    ),
                );
            }
            Ok(()) if failing => note(ACTION, &format!("{} is written again", path.display())),
            _ => {}
        }
        failing = written.is_err();
        std::thread::sleep(interval);
    }
}

/// One for all scrapers: who comes while the daemon is being asked waits, and has the same answer.
struct Exporter {
    state: Mutex<State>,
    socket: String,
}

struct State {
    collector: Collector,
    last: Option<(Instant, Arc<Scrape>)>,
}

impl Exporter {
    fn new(collector: Collector, socket: &Path) -> Self {
        let socket = socket.display().to_string();
        Self { state: Mutex::new(State { collector, last: None }), socket }
    }

    fn scrape(&self) -> Arc<Scrape> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, scrape)) = &state.last {
            if at.elapsed() < FRESH {
                return Arc::clone(scrape);
            }
        }
        let was_up = state.last.as_ref().is_none_or(|(_, scrape)| scrape.up);
        let (scrape, failed) = state.collector.scrape();
        match failed {
            Some(error) if was_up => note(
                ACTION,
                &format!(
                    "the daemon cannot be asked at {}: {error}; start it, and let this user open its socket (group sanlock): it is asked again at each scrape",
                    self.socket
                ),
            ),
            None if !was_up => note(ACTION, &format!("the daemon answers at {}", self.socket)),
            _ => {}
        }
        let scrape = Arc::new(scrape);
        state.last = Some((Instant::now(), Arc::clone(&scrape)));
        scrape
    }
}

impl Source for Exporter {
    fn metrics(&self, format: Format) -> String {
        metrics::text(&self.scrape(), format)
    }
}
