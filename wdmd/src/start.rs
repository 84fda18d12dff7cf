//! Start and end of the daemon (specification 3.2, 3.3).

use crate::cli::Options;
use crate::device::{Device, errno};
use crate::log::Log;
use crate::marker::Marker;
use crate::next;
use crate::say;
use crate::scripts::{EXECUTING_THREAD, Scripts};
use crate::server::Server;
use crate::signals::Signals;
use sanlock_sys::background::{Background, Starting, go_into_background};
use sanlock_sys::credentials::{UmaskGuard, find_group};
use sanlock_sys::notify;
use sanlock_sys::pidfile::{PidFile, PidFileError};
use sanlock_sys::priority::{MemoryLock, lock_memory, max_round_robin_priority, set_round_robin};
use sanlock_sys::process::close_on_exec_from;
use sanlock_sys::reclaim::set_io_flusher;
use sanlock_sys::thread;
use sanlock_wdmd::protocol::SOCKET_PATH;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::path::Path;

/// The directory of socket and pid file.
const RUN_DIR: &str = "/run/wdmd";
/// Pid and lock file.
const PID_FILE: &str = "/run/wdmd/wdmd.pid";
/// Exit status of a daemon that could not start, as the original's -1.
const FAILED: u8 = 255;

/// Why there is no daemon, and what to do.
struct Failed {
    text: String,
    next: &'static str,
}

impl Failed {
    fn new(text: impl Into<String>, next: &'static str) -> Self {
        Self { text: text.into(), next }
    }
}

/// Runs the daemon to its end: the exit status. Without `-D`, and without a service manager that waits for this process to be ready,
/// the calling process gets that of the start.
pub(crate) fn run(options: &Options) -> u8 {
    // Only for scripts; a kernel too old for it lets them inherit what the caller left open, as the original does.
    let _ = close_on_exec_from(3);
    if options.foreground || notify::manager_waits() {
        return daemon(options, None);
    }
    match go_into_background() {
        Ok(Background::Parent(start)) => {
            if !start.error.is_empty() {
                say::err(format_args!("wdmd: {}", start.error));
            }
            start.status
        }
        Ok(Background::Child(starting)) => daemon(options, Some(starting)),
        Err(error) => {
            say::err(format_args!("wdmd: cannot go into the background: {error}"));
            next::tell(next::LIMITS);
            FAILED
        }
    }
}

fn daemon(options: &Options, starting: Option<Starting>) -> u8 {
    // Before there are threads: they inherit it.
    let flusher = set_io_flusher(true);
    let log = match Log::start(options.foreground) {
        Ok(log) => log,
        Err(error) => {
            let text = format!("cannot start the log's thread: {error}\n{}", next::line(next::LIMITS));
            match starting {
                Some(starting) => starting.failed(FAILED, &text),
                None => say::err(format_args!("wdmd: {text}")),
            }
            return FAILED;
        }
    };
    report_panics();
    if let Err(error) = flusher {
        log.debug(format_args!(
            "memory may have to be freed by writing to disks: PR_SET_IO_FLUSHER: {error}"
        ));
    }
    let mut step = None;
    let status = match prepare(options, &log) {
        Ok(prepared) => {
            if let Some(starting) = starting {
                starting.started();
            } else if let Err(error) = notify::ready() {
                log.error(format_args!("the service manager cannot be told of the start: {error}"));
            }
            let status = prepared.serve(&log);
            step = (status != 0).then_some(next::ENDED);
            status
        }
        Err(Failed { text, next }) => {
            log.error(&text);
            match starting {
                Some(starting) => starting.failed(FAILED, &format!("{text}\n{}", next::line(next))),
                None => step = Some(next),
            }
            FAILED
        }
    };
    log.finish();
    // After the log's last line, which says why; in the background nobody would see it.
    if let Some(step) = step {
        next::tell(step);
    }
    status
}

/// A panic is a fault of this program, and ends it with the marker left behind. In the background stderr leads nowhere.
fn report_panics() {
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        // A thread without the log's descriptor would have another one opened, and mistaken for it by all the others.
        if thread::name().is_some_and(|name| name.to_bytes() == EXECUTING_THREAD.as_bytes()) {
            return default(panic);
        }
        let _ = nix::syslog::syslog(nix::syslog::Severity::LOG_ERR, &format!("fault in wdmd: {panic}"));
        default(panic);
    }));
}

/// A daemon that only has to run.
struct Prepared<'a> {
    server: Server<'a>,
    marker: Marker,
    pid_file: PidFile,
}

impl Prepared<'_> {
    fn serve(self, log: &Log) -> u8 {
        let Self { server, marker, pid_file } = self;
        match server.run() {
            Ok(()) => {
                marker.remove();
                remove_pid_file(pid_file);
                0
            }
            Err(error) => {
                // The marker stays: the device may be running.
                log.error(format_args!("the main loop failed: {error}"));
                FAILED
            }
        }
    }
}

/// Everything up to readiness, in the order of the original. The error is for the log and for whoever started the daemon.
fn prepare<'a>(options: &'a Options, log: &'a Log) -> Result<Prepared<'a>, Failed> {
    let socket_gid = match find_group(&options.group) {
        Ok(Some(group)) => group.0,
        Ok(None) => {
            log.info(format_args!("group '{}' not found, using socket gid: 0", options.group));
            0
        }
        Err(error) => {
            log.error(format_args!(
                "cannot look up the group '{}': {error}; using socket gid: 0",
                options.group
            ));
            0
        }
    };
    if options.high_priority {
        raise_priority(log);
    }
    make_run_dir()?;
    let pid_file = PidFile::lock(Path::new(PID_FILE)).map_err(|error| lock_failed(&error))?;
    let marker = match Marker::create(|text| log.error(text)) {
        Ok(marker) => marker,
        Err(error) => {
            remove_pid_file(pid_file);
            return Err(marker_failed(&error));
        }
    };
    match prepare_marked(options, socket_gid, log) {
        Ok(server) => {
            if !options.high_priority {
                // The device runs with a short timeout: nothing that stands between two pings is to wait for the disk of the system.
                lock(MemoryLock::Current, log);
            }
            Ok(Prepared { server, marker, pid_file })
        }
        Err(text) => {
            marker.remove();
            remove_pid_file(pid_file);
            Err(text)
        }
    }
}

fn prepare_marked<'a>(options: &'a Options, socket_gid: u32, log: &'a Log) -> Result<Server<'a>, Failed> {
    let signals = Signals::install()
        .map_err(|error| Failed::new(format!("cannot handle signals: {error}"), next::LIMITS))?;
    let scripts = if options.scripts { Some(find_scripts(options, log)?) } else { None };
    let listener = listen(socket_gid).map_err(|error| {
        Failed::new(format!("cannot make the socket {SOCKET_PATH}: {error}"), next::FILES)
    })?;
    let Some(device) = Device::choose(options.device.as_deref(), log) else {
        let step = next::no_device(options.device.is_some());
        return Err(Failed::new("no watchdog device, load a watchdog driver", step));
    };
    let switch = |on: bool| u8::from(on);
    log.info(format_args!(
        "wdmd started S{} H{} G{socket_gid} using {} \"{}\"",
        switch(options.scripts),
        switch(options.high_priority),
        device.path().display(),
        device.identity(),
    ));
    Server::new(options, socket_gid, log, device, scripts, listener, signals)
        .map_err(|error| Failed::new(format!("cannot set up the main loop: {error}"), next::LIMITS))
}

fn find_scripts(options: &Options, log: &Log) -> Result<Scripts, Failed> {
    let mut scripts =
        Scripts::new(options.script_dir.clone(), options.kill_script_after).map_err(|error| {
            Failed::new(format!("cannot start the thread that has scripts run: {error}"), next::LIMITS)
        })?;
    scripts.scan(log);
    Ok(scripts)
}

/// `-H 1`. A host without the means runs on with the ordinary priority.
fn raise_priority(log: &Log) {
    lock(MemoryLock::CurrentAndFuture, log);
    match max_round_robin_priority() {
        Err(error) => log.info(format_args!("could not get max scheduler priority err {}", errno(&error))),
        Ok(priority) => {
            if let Err(error) = set_round_robin(priority) {
                let number = errno(&error);
                log.info(format_args!("could not set RR|RESET_ON_FORK priority {priority} err {number}"));
            }
        }
    }
}

fn lock(which: MemoryLock, log: &Log) {
    if let Err(error) = lock_memory(which) {
        log.info(format_args!("mlockall failed: {error}"));
    }
}

fn make_run_dir() -> Result<(), Failed> {
    let _mask = UmaskGuard::set(0o022);
    match fs::DirBuilder::new().mode(0o775).create(RUN_DIR) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(Failed::new(format!("cannot make the directory {RUN_DIR}: {error}"), next::FILES))
        }
        _ => Ok(()),
    }
}

fn lock_failed(error: &PidFileError) -> Failed {
    match error {
        PidFileError::Open(error) => {
            Failed::new(format!("lockfile open error {PID_FILE}: {error}"), next::FILES)
        }
        PidFileError::Lock(error) => {
            let pid = fs::read_to_string(PID_FILE).unwrap_or_default();
            let pid = pid.lines().next().unwrap_or("").trim();
            let number = errno(error);
            Failed::new(
                format!("daemon already running (lockfile {PID_FILE} {number}), pid {pid}"),
                next::RUNNING,
            )
        }
        PidFileError::Write(error) => {
            Failed::new(format!("lockfile write error {PID_FILE}: {error}"), next::FILES)
        }
    }
}

fn marker_failed(error: &io::Error) -> Failed {
    let number = errno(error);
    let text = format!("other wdmd not cleanly stopped, shm_open error {number}");
    if error.kind() != io::ErrorKind::AlreadyExists {
        return Failed::new(format!("{text}: cannot make {}: {error}", Marker::PATH), next::MARKER);
    }
    Failed::new(
        format!(
            "{text}: {} says that a wdmd has ended without stopping its watchdog device, which will reset this host",
            Marker::PATH
        ),
        next::UNCLEAN,
    )
}

/// The file first, its lock with it: whoever finds no file makes a new one.
fn remove_pid_file(pid_file: PidFile) {
    // One that stays is overwritten by the next daemon.
    let _ = fs::remove_file(PID_FILE);
    drop(pid_file);
}

/// The listening socket, never open to more than its group.
fn listen(gid: u32) -> io::Result<UnixListener> {
    match fs::remove_file(SOCKET_PATH) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = {
        let _mask = UmaskGuard::set(0o177);
        UnixListener::bind(SOCKET_PATH)?
    };
    chown(SOCKET_PATH, None, Some(gid))?;
    fs::set_permissions(SOCKET_PATH, Permissions::from_mode(0o660))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}
