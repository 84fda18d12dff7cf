//! What the demo has started and made, and its end, however the demo ends.
//!
//! A signal ends the demo at any moment, so a thread waits for signals and does what the end of [`super::story::tell`] would have done. From
//! then on it keeps the lock for good: nothing more is started, and nothing is made in the directory.

use nix::sys::signal::Signal;
use sanlock_sys::pidfd::PidFd;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// For the end of children that were killed. One in an uninterruptible call does not end.
const PATIENCE: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(5);

/// What is there now.
#[derive(Debug)]
struct Traces {
    /// All that were ever started; signals to those that have ended go nowhere.
    children: Vec<PidFd>,
    dir: Option<PathBuf>,
}

static TRACES: Mutex<Traces> = Mutex::new(Traces { children: Vec::new(), dir: None });

fn traces() -> MutexGuard<'static, Traces> {
    TRACES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The signals that end the demo.
const SIGNALS: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// Whether one of them has come.
#[derive(Debug)]
pub(super) struct Signalled(Arc<AtomicBool>);

impl Signalled {
    /// Does not return after a signal: the thread that waits for signals ends the demo. The children that had the signal too may be what made a
    /// step fail.
    pub(super) fn leave_the_end_to_it(&self) {
        while self.0.load(Ordering::SeqCst) {
            std::thread::park();
        }
    }
}

/// From now on SIGINT, SIGTERM and SIGHUP end the demo in order.
///
/// # Errors
/// There is no room for a thread, or for handlers.
pub(super) fn watch_signals() -> io::Result<Signalled> {
    let signalled = Signalled(Arc::new(AtomicBool::new(false)));
    for signal in SIGNALS {
        signal_hook::flag::register(signal, Arc::clone(&signalled.0))?;
    }
    let mut signals = Signals::new(SIGNALS)?;
    let wait = move || {
        let Some(signal) = signals.forever().next() else { return };
        let traces = traces();
        for child in &traces.children {
            let _already_gone = child.send_signal(Signal::SIGKILL);
        }
        // What is being killed still writes into the directory.
        let deadline = Instant::now() + PATIENCE;
        while traces.children.iter().any(|child| !child.is_gone().unwrap_or(true))
            && Instant::now() < deadline
        {
            std::thread::sleep(POLL);
        }
        if let Some(dir) = &traces.dir {
            let _as_far_as_possible = std::fs::remove_dir_all(dir);
        }
        if emulate_default_handler(signal).is_err() {
            let _ends_here = nix::sys::signal::kill(nix::unistd::Pid::this(), Signal::SIGKILL);
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(wait)?;
    Ok(signalled)
}

/// A directory of the demo's own in `parent`.
///
/// # Errors
/// It cannot be made.
pub(super) fn make_dir(parent: &Path) -> io::Result<Dir> {
    let mut traces = traces();
    let dir = tempfile::Builder::new().prefix("sanlock-demo-").tempdir_in(parent)?;
    traces.dir = Some(dir.path().to_path_buf());
    Ok(Dir(dir))
}

/// The demo's directory, removed with everything in it.
#[derive(Debug)]
pub(super) struct Dir(tempfile::TempDir);

impl Dir {
    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        // Only a signal's end waits for this lock.
        let mut traces = traces();
        let _as_far_as_possible = std::fs::remove_dir_all(self.0.path());
        traces.dir = None;
    }
}

/// Makes a file in the directory.
///
/// # Errors
/// It cannot be made.
pub(super) fn make_file(path: &Path) -> io::Result<File> {
    let _nobody_ends = traces();
    File::create(path)
}

/// Starts a child, which is killed when the demo ends, whatever ends it.
///
/// # Errors
/// Those of `spawn`, or no descriptor is to be had for it.
pub(super) fn spawn(command: &mut Command) -> io::Result<Child> {
    let mut traces = traces();
    let mut child = sanlock_sys::child::dies_with_parent(command).spawn()?;
    let known = i32::try_from(child.id()).map_err(io::Error::other).and_then(PidFd::open);
    match known {
        Ok(known) => {
            traces.children.push(known);
            Ok(child)
        }
        Err(error) => {
            child.kill().and_then(|()| child.wait())?;
            Err(error)
        }
    }
}
