//! `--probe` and `--trytimeout` (specification 4.8, 4.9): finding out what a device does, with no daemon running.
//!
//! Invariants: a device that was opened is told to stop before its file is closed, and the marker is removed, on every way out,
//! a panic and a signal too. While a device is open nothing is printed: whoever reads that may take its time, or be gone, and the
//! device does not wait. Only a device that is to reset this host is no longer watched over like that.

use crate::device::{self, Factor, Handle, Opened, errno};
use crate::marker::Marker;
use crate::next;
use crate::say;
use crate::sysfs::{self, Described};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use sanlock_sys::clock::civil_now;
use sanlock_wdmd::decide::{Timing, wanted_device_timeout};
use sanlock_wdmd::protocol::DEFAULT_FIRE_TIMEOUT;
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;
use std::time::Duration;

/// Nothing was found, or nothing may be tried.
const FAILURE: u8 = 1;
const NO_DEVICE: &str = "no watchdog device, load a watchdog driver";
/// How much longer than its timeout a device is waited for, seconds.
const OVERTIME: u32 = 4;

/// Signals that end this process wait while this exists. SIGQUIT does not, for a device that does not answer.
struct Undisturbed {
    /// What waited before.
    before: Option<SigSet>,
}

impl Undisturbed {
    fn begin() -> Self {
        let signals: SigSet = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP].into_iter().collect();
        // Without it a signal ends the process at once.
        Self { before: signals.thread_swap_mask(SigmaskHow::SIG_BLOCK).ok() }
    }
}

impl Drop for Undisturbed {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = before.thread_set_mask();
        }
    }
}

/// What is said, in its order; printed at once, or when nobody has to be undisturbed any more.
struct Report {
    lines: Vec<Line>,
    undisturbed: Option<Undisturbed>,
}

enum Line {
    Out(String),
    Err(String),
}

impl Report {
    fn begin() -> Self {
        Self { lines: Vec::new(), undisturbed: Some(Undisturbed::begin()) }
    }

    fn out(&mut self, text: impl fmt::Display) {
        self.line(Line::Out(text.to_string()));
    }

    fn err(&mut self, text: impl fmt::Display) {
        self.line(Line::Err(text.to_string()));
    }

    /// A line on stdout, with the date.
    fn step(&mut self, text: impl fmt::Display) {
        self.out(format_args!("{}  {text}", civil_now(false)));
    }

    fn line(&mut self, line: Line) {
        self.lines.push(line);
        if self.undisturbed.is_none() {
            self.print();
        }
    }

    /// From now on signals act, and lines are printed as they come. Those kept so far follow the signals: whoever ends this process
    /// does not wait for the reader of what it prints.
    fn release(&mut self) {
        self.undisturbed = None;
        self.print();
    }

    fn print(&mut self) {
        for line in self.lines.drain(..) {
            match line {
                Line::Out(text) => say::out(text),
                Line::Err(text) => say::err(text),
            }
        }
    }
}

/// An open device. It is told to stop before its file is closed, whatever becomes of this.
struct Tried {
    device: Opened,
    told: bool,
}

impl Tried {
    fn new(device: Opened) -> Self {
        Self { device, told: false }
    }

    /// Stops the device and closes its file. On failure the device runs, and resets this host.
    fn stop(mut self) -> io::Result<()> {
        self.told = true;
        self.device.magic()
    }
}

impl Drop for Tried {
    fn drop(&mut self) {
        if !self.told {
            let _ = self.device.magic();
        }
    }
}

/// The marker while devices are tried: nobody relies on one of them, so it never stays.
struct Marked(Option<Marker>);

impl Drop for Marked {
    fn drop(&mut self) {
        if let Some(marker) = self.0.take() {
            marker.remove();
        }
    }
}

/// Prints the path of the first device that works with the default fire timeout.
pub(crate) fn probe(named: Option<&OsStr>) -> u8 {
    try_devices(named, probe_one)
}

/// Tries the first device that takes `timeout`, and reports every step; then waits for it to reset this host, if asked to.
pub(crate) fn try_timeout(named: Option<&OsStr>, timeout: u32, force_fire: bool) -> u8 {
    try_devices(named, |path, report| try_one(path, timeout, force_fire, report))
}

fn try_devices(named: Option<&OsStr>, mut works: impl FnMut(&Path, &mut Report) -> bool) -> u8 {
    let mut report = Report::begin();
    let marker = match Marker::create(|text| report.err(text)) {
        Ok(marker) => Marked(Some(marker)),
        Err(error) => {
            report.release();
            return refused(&error);
        }
    };
    let found = match device::candidates(named) {
        Ok(paths) => paths.iter().any(|path| works(path, &mut report)),
        Err(text) => {
            report.err(text);
            false
        }
    };
    drop(marker);
    report.release();
    if found {
        return 0;
    }
    say::err(NO_DEVICE);
    next::tell(next::no_device(named.is_some()));
    FAILURE
}

/// The marker cannot be made, for this reason.
fn refused(error: &io::Error) -> u8 {
    let text = "cannot probe watchdog devices while wdmd is in use.";
    say::err(text);
    if error.kind() != io::ErrorKind::AlreadyExists {
        say::err(format_args!("{}: {error}", Marker::PATH));
    }
    let ident = Some(c"wdmd-probe");
    let (flags, facility) =
        (nix::syslog::LogFlags::LOG_CONS | nix::syslog::LogFlags::LOG_PID, nix::syslog::Facility::LOG_DAEMON);
    let _ = nix::syslog::openlog(ident, flags, facility);
    let _ = nix::syslog::syslog(nix::syslog::Severity::LOG_ERR, text);
    next::tell(match error.kind() {
        io::ErrorKind::AlreadyExists => next::IN_USE,
        _ => next::MARKER,
    });
    FAILURE
}

/// Why a device is not even opened: it could not be closed again.
fn no_way_out(path: &Path, report: &mut Report) -> bool {
    let stuck = Described::of(path).no_way_out == Some(true);
    if stuck {
        report.err(format_args!(
            "{} cannot be stopped once it is open (nowayout): trying it would reset this host, so it is left alone",
            path.display()
        ));
    }
    stuck
}

/// The same: somebody relies on it.
fn left_running(path: &Path, report: &mut Report) -> bool {
    let runs = sysfs::runs(path) == Some(true);
    if runs {
        report.err(format_args!("{} {}", path.display(), device::left_running(&sysfs::holders(path))));
    }
    runs
}

fn probe_one(path: &Path, report: &mut Report) -> bool {
    let shown = path.display();
    let failed = |what: &str, error: &io::Error| {
        let (number, reason) = (errno(error), device::reason(error));
        format!("error {number} {what} {shown}: {reason}{}", device::held_by(path, error))
    };
    if let Err(error) = fs::metadata(path) {
        report.err(failed("stat", &error));
        return false;
    }
    if no_way_out(path, report) || left_running(path, report) {
        return false;
    }
    let device = match device::open(path) {
        Ok(file) => Tried::new(Box::new(file)),
        Err(error) => {
            report.err(failed("open", &error));
            return false;
        }
    };
    let tried = probe_open(device.device.as_ref());
    let stopped = device.stop();
    let works = tried.is_ok();
    match tried {
        Ok(()) => report.out(&shown),
        Err(Unusable::Call(what, error)) => report.err(failed(what, &error)),
        Err(Unusable::Timeout { asked, got }) => {
            report.err(format_args!("error 0 invalid timeout {shown}: set {asked}, got {got}"));
        }
        Err(Unusable::Driver(reason)) => {
            report.err(format_args!("error 0 {shown} cannot be used: {reason}"));
        }
        Err(Unusable::Pretimeout(why)) => {
            report.err(format_args!(
                "error 0 {shown} cannot be used: its pretimeout cannot be switched off ({why})"
            ));
        }
    }
    if let Err(error) = stopped {
        report.err(failed("disarm", &error));
        return false;
    }
    works
}

enum Unusable {
    Call(&'static str, io::Error),
    Driver(&'static str),
    Timeout { asked: u32, got: u32 },
    Pretimeout(String),
}

/// Does with the device what the daemon would do for the default fire timeout, up to the first keepalive.
fn probe_open(file: &dyn Handle) -> Result<(), Unusable> {
    let mut reported = file.timeout().map_err(|error| Unusable::Call("ioctl gettimeout", error))?;
    let support = file.support().map_err(|error| Unusable::Call("ioctl getsupport", error))?;
    if let Some(reason) = device::unfit(&support) {
        return Err(Unusable::Driver(reason));
    }
    let factor = Factor::of(support.identity());
    let asked = factor.to_driver(wanted_device_timeout(DEFAULT_FIRE_TIMEOUT).unwrap_or(1));
    if reported != asked || device::reports_no_options(&support) {
        file.set_timeout(asked).map_err(|error| Unusable::Call("ioctl settimeout", error))?;
        reported = file.timeout().map_err(|error| Unusable::Call("ioctl gettimeout", error))?;
    }
    if Timing::new(DEFAULT_FIRE_TIMEOUT, factor.to_true(reported)).is_none() {
        return Err(Unusable::Timeout { asked, got: reported });
    }
    device::end_pretimeout(file, &support).map(drop).map_err(Unusable::Pretimeout)
}

fn try_one(path: &Path, timeout: u32, force_fire: bool, report: &mut Report) -> bool {
    let shown = path.display();
    if let Err(error) = fs::metadata(path) {
        report.err(format_args!("{shown} stat error {}", device::told(&error)));
        return false;
    }
    if no_way_out(path, report) || left_running(path, report) {
        return false;
    }
    let file = match device::open(path) {
        Ok(file) => file,
        Err(error) => {
            report.err(format_args!(
                "{shown} open error {}{}",
                device::told(&error),
                device::held_by(path, &error)
            ));
            return false;
        }
    };
    let fd = file.as_raw_fd();
    let device = Tried::new(Box::new(file));
    report.step(format_args!("{shown} open fd {fd}"));
    let took = try_open(path, device.device.as_ref(), fd, timeout, report);
    if took && force_fire {
        // The last line before the reset should be seen; and who ends the wait does not avert it.
        report.release();
        wait_for_reset(path, timeout, report);
    }
    let verdict = if took { 0 } else { -1 };
    match device.stop() {
        Ok(()) => {
            report.step(format_args!("{shown} disarm write V fd {fd} result {verdict}"));
            report.step(format_args!("{shown} close fd {fd} result 0"));
            took
        }
        Err(error) => {
            report
                .err(format_args!("{shown} disarm error {}: this host will be reset", device::told(&error)));
            false
        }
    }
}

fn try_open(path: &Path, device: &dyn Handle, fd: RawFd, timeout: u32, report: &mut Report) -> bool {
    let shown = path.display();
    // The driver that is open, as the daemon does; sysfs where it does not tell.
    let identity = device.support().map(|support| support.identity().to_owned()).ok();
    let factor =
        Factor::of(&identity.or_else(|| Described::of(path).identity).unwrap_or_default()).as_counted();
    // A number as the driver counts, with the true one if that is another.
    let both = |driver: u32| {
        if factor.is_odd() {
            format!("real {} itco {driver}", factor.to_true(driver).latest())
        } else {
            driver.to_string()
        }
    };
    let get = |report: &mut Report| match device.timeout() {
        Ok(seconds) => {
            report.step(format_args!("{shown} gettimeout {}", both(seconds)));
            Some(seconds)
        }
        Err(error) => {
            report.err(format_args!("{shown} gettimeout error {}", device::told(&error)));
            None
        }
    };
    if get(report).is_none() {
        return false;
    }
    let asked = factor.to_driver(timeout);
    match device.set_timeout(asked) {
        Ok(result) => {
            let wanted =
                if factor.is_odd() { format!("real {timeout} itco {asked}") } else { asked.to_string() };
            report.step(format_args!("{shown} settimeout {wanted} result {}", both(result)));
        }
        Err(error) => {
            report.err(format_args!("{shown} settimeout {timeout} error {}", device::told(&error)));
            return false;
        }
    }
    let Some(got) = get(report) else { return false };
    if factor.to_true(got).latest() != timeout {
        report.err(format_args!("{shown} settimeout {timeout} failed"));
        return false;
    }
    match device.keepalive() {
        Ok(()) => {
            report.step(format_args!("{shown} keepalive fd {fd} result 0"));
            true
        }
        Err(error) => {
            report.err(format_args!("{shown} keepalive error {}", device::told(&error)));
            false
        }
    }
}

/// Counts the seconds until the device resets this host, which should end this process.
fn wait_for_reset(path: &Path, timeout: u32, report: &mut Report) {
    report.step("waiting for watchdog to reset machine:");
    for second in 1..=timeout.saturating_add(OVERTIME) {
        std::thread::sleep(Duration::from_secs(1));
        if second <= timeout {
            report.step(second);
        } else {
            report.step(format_args!(
                "{second} {} failed to fire after timeout {timeout} seconds",
                path.display()
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::pretended::{self, calls};

    #[test]
    fn a_panic_stops_the_device_before_its_file_is_closed() {
        let result = std::panic::catch_unwind(|| {
            let _device = Tried::new(pretended::open(Path::new("/dev/pretended")).unwrap());
            std::panic::resume_unwind(Box::new("out of order"));
        });
        assert!(result.is_err());
        assert_eq!(calls(), ["open", "V", "close"]);
        let device = Tried::new(pretended::open(Path::new("/dev/pretended")).unwrap());
        device.stop().unwrap();
        assert_eq!(calls(), ["open", "V", "close"]);
    }
}
