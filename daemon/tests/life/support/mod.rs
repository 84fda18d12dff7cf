//! Daemons and holders as child processes, on scratch directories of a real file system.

pub(crate) mod served;

use nix::unistd::Pid;
use sanlock_client::{Client, ClientError};
use sanlock_lease::record::RawLeader;
use sanlock_wire::flags::{AddFlags, WriteFlags};
use sanlock_wire::types::{Disk, Lockspace, Resource, ResourceSpec};
use sanlock_wire::{Name, code};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{panicking, sleep, spawn};
use std::time::{Duration, Instant};

/// Where the resource lies on the lease file; the lockspace is at 0.
pub(crate) const RESOURCE_OFFSET: u64 = 1 << 20;

/// The resource at an offset of the lease file: `R` at [`RESOURCE_OFFSET`], or a further one.
fn name_at(offset: u64) -> String {
    match offset >> 20 {
        1 => "R".to_owned(),
        area => format!("R{area}"),
    }
}

/// Waits until `done`, at most `limit`; whether it came to that.
pub(crate) fn within(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    loop {
        if done() {
            return true;
        }
        if start.elapsed() > limit {
            return false;
        }
        sleep(Duration::from_millis(20));
    }
}

/// What a process that is alive says is said within this time, and one that was killed ends, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(120);

/// A busy machine does an I/O within its timeout once in this time.
const SLOW_LIMIT: Duration = Duration::from_secs(60);

/// What a request brings that is repeated as long as an I/O of it takes longer than the io timeout of a second, as one may on a busy machine,
/// and until a write that did has ended.
pub(crate) fn in_time<T>(mut request: impl FnMut() -> Result<T, ClientError>) -> Result<T, ClientError> {
    let begin = Instant::now();
    let mut slow = false;
    loop {
        let answer = request();
        let answered = answer.as_ref().err().map_or(0, ClientError::result_code);
        slow |= answered == code::SANLK_AIO_TIMEOUT;
        let again = slow && [code::SANLK_AIO_TIMEOUT, code::EAGAIN].contains(&answered);
        if !again || begin.elapsed() > SLOW_LIMIT {
            return answer;
        }
        sleep(Duration::from_millis(100));
    }
}

/// The example `test-daemon`, which `cargo test` builds unless it is told to build this test alone.
fn program() -> PathBuf {
    // target/debug/deps/life-… and target/debug/examples/test-daemon
    let own = std::env::current_exe().unwrap();
    own.parent().unwrap().parent().unwrap().join("examples/test-daemon")
}

fn serving<'a>(command: &'a mut Command, run_dir: &Path, host_name: &str) -> &'a mut Command {
    // A service manager that is gone keeps no daemon from its work.
    let command = command.env("NOTIFY_SOCKET", "@no-service-manager");
    command.args(["serve".as_ref(), run_dir.as_os_str(), host_name.as_ref()])
}

/// A daemon that dies with the test.
pub(crate) struct Daemon {
    child: Child,
    log: PathBuf,
    pub(crate) run_dir: PathBuf,
}

impl Daemon {
    /// Starts a daemon in `run_dir`, which it makes if it is missing, and waits for its socket.
    pub(crate) fn start(run_dir: &Path, host_name: &str) -> Self {
        Self::start_by(Command::new(program()), run_dir, host_name)
    }

    /// The same with so many descriptors at most.
    pub(crate) fn start_with_descriptors(number: u32, run_dir: &Path, host_name: &str) -> Self {
        Self::start_with_limit(&format!("ulimit -n {number}"), run_dir, host_name)
    }

    /// The same after this command of a shell.
    pub(crate) fn start_with_limit(limit: &str, run_dir: &Path, host_name: &str) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{limit} && exec \"$@\""), "sh"]).arg(program());
        Self::start_by(command, run_dir, host_name)
    }

    /// What a daemon says that does not start there.
    pub(crate) fn refused(run_dir: &Path, host_name: &str) -> String {
        let mut command = Command::new(program());
        let mut child = serving(&mut command, run_dir, host_name).stderr(Stdio::piped()).spawn().unwrap();
        let ended = within(Duration::from_secs(60), || child.try_wait().unwrap().is_some());
        let _ = child.kill();
        let said = child.wait_with_output().unwrap();
        assert!(ended && !said.status.success(), "it started");
        String::from_utf8(said.stderr).unwrap()
    }

    fn start_by(mut command: Command, run_dir: &Path, host_name: &str) -> Self {
        let log = run_dir.with_extension(format!("{host_name}.log"));
        let child = serving(&mut command, run_dir, host_name).stderr(File::create(&log).unwrap()).spawn();
        let child = child.unwrap();
        let daemon = Self { child, log, run_dir: run_dir.to_owned() };
        let client = daemon.client();
        assert!(within(Duration::from_secs(60), || client.version().is_ok()), "the daemon does not answer");
        daemon
    }

    pub(crate) fn client(&self) -> Client {
        Client::with_run_dir(&self.run_dir)
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    /// What it has said.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// Of the process that runs programs for it.
    pub(crate) fn helper_pid(&self) -> Pid {
        let records = self.client().status(1).unwrap();
        let pid = records[0].get("helper_pid").unwrap();
        Pid::from_raw(String::from_utf8_lossy(pid).parse().unwrap())
    }

    /// Ends it without a chance to clean up.
    pub(crate) fn crash(mut self) {
        assert!(self.kill(), "it was killed and does not end");
    }

    /// Whether it has ended then: one of its threads may be in storage that does not answer.
    fn kill(&mut self) -> bool {
        let _ = self.child.kill();
        within(PATIENCE, || !matches!(self.child.try_wait(), Ok(None)))
    }

    /// Waits for its end; the exit status.
    pub(crate) fn ended(&mut self, limit: Duration) -> Option<i32> {
        let mut status = None;
        within(limit, || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.and_then(|status| status.code())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let ended = self.kill();
        if panicking() {
            eprintln!("--- {}\n{}---", self.log.display(), fs::read_to_string(&self.log).unwrap_or_default());
        }
        assert!(ended || panicking(), "it was killed and does not end");
    }
}

/// A process that holds, or waits for, the resource.
pub(crate) struct Holder {
    child: Child,
    lines: Receiver<String>,
}

impl Holder {
    pub(crate) fn start(daemon: &Daemon, leases: &Path) -> Self {
        Self::of(daemon, leases, RESOURCE_OFFSET)
    }

    /// Of the resource that lies at this offset.
    pub(crate) fn of(daemon: &Daemon, leases: &Path, offset: u64) -> Self {
        let mut child = Command::new(program())
            .args(["hold".as_ref(), daemon.run_dir.as_os_str(), leases.as_os_str()])
            .args([offset.to_string(), name_at(offset)])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (said, lines) = channel();
        spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| said.send(line)));
        Self { child, lines }
    }

    /// The next line it says; nothing when it has ended.
    pub(crate) fn says(&mut self) -> String {
        self.line_within(PATIENCE).unwrap_or_default()
    }

    /// The next line; `None` at its end.
    fn line_within(&self, limit: Duration) -> Option<String> {
        match self.lines.recv_timeout(limit) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("a holder says nothing within {limit:?}"),
        }
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    pub(crate) fn is_gone(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Everything it said until its end.
    pub(crate) fn last_words(self) -> String {
        let end = Instant::now() + PATIENCE;
        let next = || self.line_within(end.saturating_duration_since(Instant::now()));
        std::iter::from_fn(next).collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A scratch directory with a lease file, formatted through `daemon` with io timeout 1.
pub(crate) struct Place {
    pub(crate) dir: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        File::create(dir.path().join("leases")).unwrap().set_len(RESOURCE_OFFSET + (1 << 20)).unwrap();
        Self { dir }
    }

    pub(crate) fn leases(&self) -> PathBuf {
        self.dir.path().join("leases")
    }

    pub(crate) fn run_dir(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn format(&self, daemon: &Daemon) {
        let client = daemon.client();
        in_time(|| client.write_lockspace(&self.lockspace(0), 0, 1)).unwrap();
        in_time(|| client.write_resource(&self.resource(), 0, 0, WriteFlags::empty())).unwrap();
    }

    pub(crate) fn lockspace(&self, host_id: u64) -> Lockspace {
        let disk = Disk::new(self.leases().as_os_str().as_encoded_bytes(), 0).unwrap();
        Lockspace::new(Name::truncated("LS"), host_id, disk)
    }

    pub(crate) fn resource(&self) -> ResourceSpec {
        self.resource_at(RESOURCE_OFFSET)
    }

    pub(crate) fn resource_at(&self, offset: u64) -> ResourceSpec {
        let disk = Disk::new(self.leases().as_os_str().as_encoded_bytes(), offset).unwrap();
        let name = Name::truncated(name_at(offset));
        ResourceSpec::new(Resource::new(Name::truncated("LS"), name), vec![disk]).unwrap()
    }

    /// The second in which host 1 renewed last, as it is on the disk.
    pub(crate) fn last_renewal(&self) -> u64 {
        let leases = fs::read(self.leases()).unwrap();
        RawLeader::from_sector(&leases[..512]).timestamp.get()
    }

    /// Joins with io timeout 1, waiting for the end of the join.
    pub(crate) fn join(&self, daemon: &Daemon, host_id: u64) {
        let (client, lockspace) = (daemon.client(), self.lockspace(host_id));
        in_time(|| client.add_lockspace_timeout(&lockspace, AddFlags::empty(), 1)).unwrap();
    }

    /// Begins to join, and says whether it is joined within `limit`.
    pub(crate) fn joins_within(&self, daemon: &Daemon, host_id: u64, limit: Duration) -> bool {
        let (client, ls) = (daemon.client(), self.lockspace(host_id));
        client.add_lockspace_timeout(&ls, AddFlags::ASYNC, 1).unwrap();
        within(limit, || match client.inq_lockspace(&ls, sanlock_wire::flags::InqFlags::empty()) {
            Ok(()) => true,
            Err(error) => {
                assert_eq!(error.result_code(), code::EINPROGRESS, "{error}");
                false
            }
        })
    }
}
