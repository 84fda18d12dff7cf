//! Where a group of cases takes place: one daemon, leases in every state, and a picture of everything that must not change.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sanlock_conformance::dead_owner::registered;
use sanlock_conformance::raw::{self, Connection, Lockspace, Resource, SELF, cmd, flag};
use sanlock_conformance::storage::LOCKSPACE;
use sanlock_conformance::{Program, Scene, Table, User, bounded};

use crate::message::{Answer, Expected, Message};

/// For what the daemon does on its own after an answer, on a loaded machine.
const SOON: Duration = Duration::from_secs(60);
/// A join on the original looks at its outcome once a second; nothing else here waits.
const REPLY_LIMIT: Duration = Duration::from_secs(60);
/// No reply within this time is silence.
const SILENCE: Duration = Duration::from_millis(700);

/// The areas of the storage, 1 MiB each. Area 0 is the joined lockspace `LS`, host id 1.
pub(crate) mod area {
    /// Held exclusively, with a value block, by the holder connection.
    pub(crate) const OWN: u64 = 1;
    /// Held shared by it.
    pub(crate) const SHARED: u64 = 2;
    /// Free.
    pub(crate) const FREE: u64 = 3;
    /// Held exclusively by another process.
    pub(crate) const FOREIGN: u64 = 4;
    /// An exclusive orphan.
    pub(crate) const ORPHAN: u64 = 5;
    /// A lease of lockspace `OTHER`, named as if it were ours.
    pub(crate) const OTHER_LOCKSPACE: u64 = 6;
    /// A lease named `ELSE`.
    pub(crate) const OTHER_NAME: u64 = 7;
    /// Never formatted.
    pub(crate) const BLANK: u64 = 8;
    /// An index of three resources; its lease is the next area, and the resources are those behind it.
    pub(crate) const INDEX: u64 = 9;
    /// The internal lease of the index.
    pub(crate) const INDEX_LEASE: u64 = 10;
    /// The first resource of the index.
    pub(crate) const ENTRY: u64 = 11;
    /// The lockspace `LS2`, formatted and not joined.
    pub(crate) const SECOND: u64 = 14;
    /// Nothing; for requests that are right.
    pub(crate) const SPARE: u64 = 15;
}

/// Name of the second lockspace.
pub(crate) const SECOND: &str = "LS2";

/// See the module.
pub(crate) struct Arena {
    holder: RefCell<Connection>,
    user: User,
    pub(crate) scene: Scene,
    dead: u32,
    picture: RefCell<Picture>,
    table: RefCell<Table>,
}

impl Arena {
    /// `None` when the program under test is missing.
    pub(crate) fn new() -> Option<Self> {
        let scene = Scene::one_host(Program::under_test()?, 5);
        let host = scene.host(0);
        let storage = scene.storage();
        let (path, offset) = (storage.path(), |area: u64| storage.offset(area));
        for (name, area) in [("OTHER:R6", area::OTHER_LOCKSPACE), ("LS:ELSE", area::OTHER_NAME)] {
            let argument = format!("{name}:{path}:{}", offset(area));
            host.client(&["client", "init", "-r", &argument]).success();
        }
        let second = format!("{SECOND}:0:{path}:{}", offset(area::SECOND));
        host.client(&["client", "init", "-s", &second, "-o", "1"]).success();
        let index = raw::rindex(LOCKSPACE, path, offset(area::INDEX), 0, 3);
        assert_eq!(host.connect().request(cmd::FORMAT_RINDEX, 0, 0, 0, &index).result(), 0);
        let index = format!("{LOCKSPACE}:{path}:{}", offset(area::INDEX));
        host.client(&["client", "create", "-x", &index, "-e", "A"]).success();

        let mut ends = registered(host);
        assert_eq!(ends.acquire_one(&storage.resource(area::ORPHAN).persistent()), 0);
        drop(ends);
        let orphaned = || host.client(&["client", "status"]).success().stdout.contains(" ORPHAN");
        bounded::wait_until("the orphan", SOON, orphaned);

        let mut holder = registered(host);
        holder.set_limit(REPLY_LIMIT);
        let own = storage.resource(area::OWN);
        assert_eq!(holder.acquire(std::slice::from_ref(&own), flag::ACQUIRE_LVB, None), 0);
        assert_eq!(holder.set_lvb(&own, b"value"), 0);
        assert_eq!(holder.acquire_one(&storage.resource(area::SHARED).shared()), 0);
        let user = User::start(host, storage, area::FOREIGN, &[]);
        let mut short = std::process::Command::new("true");
        let mut short =
            short.stdin(std::process::Stdio::null()).spawn().unwrap_or_else(|e| panic!("true: {e}"));
        let dead = short.id();
        short.wait().unwrap_or_else(|error| panic!("waiting for true: {error}"));
        let (holder, picture) = (RefCell::new(holder), RefCell::new(Picture::of(&scene)));
        Some(Self { holder, user, scene, dead, picture, table: RefCell::default() })
    }

    fn program(&self) -> Program {
        self.scene.host(0).program()
    }

    /// Takes the state as it is now for the one that must not change.
    pub(crate) fn look_anew(&self) {
        self.picture.replace(Picture::of(&self.scene));
    }

    /// Process id of the other process that holds a lease.
    pub(crate) fn foreign_pid(&self) -> u32 {
        self.user.pid()
    }

    /// A process id that belonged to a process which has ended.
    pub(crate) fn dead_pid(&self) -> u32 {
        self.dead
    }

    /// The joined lockspace.
    pub(crate) fn lockspace(&self) -> Lockspace {
        self.scene.storage().lockspace(1)
    }

    /// The one that could be joined.
    pub(crate) fn second(&self) -> Lockspace {
        let storage = self.scene.storage();
        Lockspace::new(SECOND, 1, storage.path(), storage.offset(area::SECOND))
    }

    /// The resource that belongs into an area: names and place.
    pub(crate) fn resource(&self, area: u64) -> Resource {
        self.scene.storage().resource(area)
    }

    /// Paths that cannot be opened, with the errno of doing so.
    pub(crate) fn closed_paths(&self) -> Vec<(&'static str, Vec<u8>, i32)> {
        let leases = self.scene.storage().path();
        vec![
            ("a missing file", format!("{leases}-missing").into(), -2),
            ("a missing directory", b"/nonexistent/directory/leases".to_vec(), -2),
            ("a path through a file", format!("{leases}/leases").into(), -20),
            // A file of sysfs without a write method: not even root may open it for writing.
            ("a file that may not be written", b"/sys/kernel/uevent_seqnum".to_vec(), -13),
        ]
    }

    /// The same and a directory, for commands that give one code whatever the reason.
    pub(crate) fn unusable_paths(&self) -> Vec<(&'static str, Vec<u8>)> {
        let mut paths: Vec<_> = self.closed_paths().into_iter().map(|(what, path, _)| (what, path)).collect();
        let directory = self.scene.storage().dir().to_string_lossy().into_owned();
        paths.push(("a directory", directory.into()));
        paths
    }

    /// Sends a request on a connection of its own that must be refused as expected and change nothing.
    pub(crate) fn refused(&self, what: &str, message: &Message, expected: impl Into<Expected>) {
        let mut connection = self.scene.host(0).connect();
        if let Some((answer, expected)) = self.exchange(&mut connection, message, expected.into()) {
            self.expect(what, answer, expected);
            if answer == expected && !(message.original_strays() && self.program() == Program::Reference) {
                self.look_after(what, &mut connection, message, answer);
            }
            drop(connection);
            self.unchanged(what);
        }
    }

    /// The same on the connection of the process that holds leases, which must go on.
    pub(crate) fn refused_to_holder(&self, what: &str, message: &Message, expected: impl Into<Expected>) {
        let mut holder = self.holder.borrow_mut();
        if let Some((answer, expected)) = self.exchange(&mut holder, message, expected.into()) {
            self.expect(what, answer, expected);
            self.expect(&format!("{what}: the holder's leases"), holder.inquire(None).count, 2);
        }
        drop(holder);
        self.unchanged(what);
    }

    /// Sends bytes on the connection of the process that holds leases.
    pub(crate) fn mutter_as_holder(&self, bytes: &[u8]) {
        self.holder.borrow_mut().send(bytes);
        self.unchanged("after nonsense");
    }

    /// Sends a request as it should be. Only the answer is looked at.
    pub(crate) fn granted(&self, what: &str, message: &Message, expected: i32) {
        self.answered(&format!("{what}, as it should be"), message, expected);
    }

    /// Sends a request and looks at nothing but the answer.
    pub(crate) fn answered(&self, what: &str, message: &Message, expected: i32) {
        let mut connection = self.scene.host(0).connect();
        if let Some((answer, expected)) = self.exchange(&mut connection, message, expected.into()) {
            self.expect(what, answer, expected);
        }
    }

    /// The same on the connection of the process that holds leases.
    pub(crate) fn granted_to_holder(&self, what: &str, message: &Message, expected: i32) {
        let mut holder = self.holder.borrow_mut();
        if let Some((answer, expected)) = self.exchange(&mut holder, message, expected.into()) {
            self.expect(&format!("{what}, as it should be"), answer, expected);
        }
        drop(holder);
    }

    /// Notes a difference that is not one of an answer.
    pub(crate) fn expect<T: PartialEq + std::fmt::Debug>(&self, what: &str, actual: T, expected: T) {
        self.table.borrow_mut().expect(what, actual, expected);
    }

    /// `None` when the program is not to be asked.
    fn exchange(
        &self,
        connection: &mut Connection,
        message: &Message,
        expected: Expected,
    ) -> Option<(Answer, Answer)> {
        let expected = match self.program() {
            Program::Ours => expected.ours,
            Program::Reference => expected.reference?,
        };
        connection.set_limit(if expected == Answer::Silence { SILENCE } else { REPLY_LIMIT });
        // In one piece: whoever refuses the header may close before the rest comes.
        connection.send(&[&message.header().encode()[..], message.payload()].concat());
        let answer = match connection.try_receive() {
            Ok(reply) => {
                let rest = payload_of(&reply);
                connection.receive_payload(rest);
                Answer::Code(reply.result())
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                Answer::Silence
            }
            Err(_) => Answer::End,
        };
        connection.set_limit(REPLY_LIMIT);
        Some((answer, expected))
    }

    /// Nothing more came than the reply, and the connection is where it should be.
    fn look_after(&self, what: &str, connection: &mut Connection, message: &Message, answer: Answer) {
        let closes = answer == Answer::End
            || answer != Answer::Silence
                && matches!(
                    message.header().cmd,
                    cmd::SHUTDOWN
                        | cmd::STATUS
                        | cmd::LOG_DUMP
                        | cmd::HOST_STATUS
                        | cmd::RENEWAL
                        | cmd::GET_LOCKSPACES
                        | cmd::GET_HOSTS
                        | cmd::REG_EVENT
                        | cmd::END_EVENT
                        | cmd::SET_CONFIG
                );
        if !closes {
            self.expect(&format!("{what}: the connection goes on"), connection.version().is_ok(), true);
        } else if answer != Answer::Code(0) {
            let mut byte = [0];
            let more = std::io::Read::read(&mut connection.stream(), &mut byte).unwrap_or(0);
            self.expect(&format!("{what}: bytes before the end of the connection"), more, 0);
        }
    }

    /// Everything is as it was.
    pub(crate) fn unchanged(&self, what: &str) {
        if let Some((difference, now)) = self.difference() {
            self.expect(&format!("{what}: state"), difference.as_str(), "unchanged");
            self.picture.replace(now);
        }
    }

    fn difference(&self) -> Option<(String, Picture)> {
        let begin = std::time::Instant::now();
        loop {
            let now = Picture::of(&self.scene);
            let difference = self.picture.borrow().difference(&now)?;
            if begin.elapsed() > SOON {
                return Some((difference, now));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Looks once more when two renewals have written what the lockspace has to say.
    pub(crate) fn still_unchanged(&self) {
        for _ in 0..2 {
            let before = renewed(&self.scene);
            bounded::wait_until("a renewal", SOON, || renewed(&self.scene) != before);
        }
        self.unchanged("after two renewals");
    }
}

/// Bytes that follow a reply header, also one that says no.
fn payload_of(reply: &raw::Header) -> usize {
    let announced = || (reply.length as usize).saturating_sub(raw::HEADER_LEN);
    match reply.cmd {
        cmd::READ_LOCKSPACE => Lockspace::LEN,
        cmd::READ_RESOURCE => Resource::LEN,
        cmd::READ_RESOURCE_OWNERS => Resource::LEN + 32 * reply.data2 as usize,
        cmd::UPDATE_RINDEX | cmd::LOOKUP_RINDEX | cmd::CREATE_RESOURCE | cmd::DELETE_RESOURCE => 64,
        cmd::INQUIRE | cmd::GET_LVB => announced(),
        _ => 0,
    }
}

/// The time stamp of the own host_id lease.
fn renewed(scene: &Scene) -> Vec<u8> {
    let bytes = std::fs::read(scene.storage().path()).unwrap_or_else(|error| panic!("the leases: {error}"));
    bytes[TIMESTAMP].to_vec()
}

/// Fields of a leader record that each renewal changes (disk-format.md 3).
const TIMESTAMP: std::ops::Range<usize> = 152..160;
const CHECKSUM: std::ops::Range<usize> = 168..172;

/// Everything that a refused request must leave alone.
#[derive(PartialEq)]
struct Picture {
    status: String,
    value: Result<Vec<u8>, i32>,
    files: BTreeMap<PathBuf, Vec<u8>>,
}

impl Picture {
    fn of(scene: &Scene) -> Self {
        let status = masked_status(&scene.host(0).client(&["client", "status", "-D"]).success().stdout);
        let value = scene.host(0).connect().get_lvb(&scene.storage().resource(area::OWN), 0);
        Self { status, value, files: files(scene) }
    }

    fn difference(&self, now: &Self) -> Option<String> {
        if self.status != now.status {
            let lost = |from: &str, to: &str| -> Vec<String> {
                let there: Vec<&str> = to.lines().collect();
                from.lines().filter(|line| !there.contains(line)).map(str::to_owned).collect()
            };
            let (gone, come) = (lost(&self.status, &now.status), lost(&now.status, &self.status));
            return Some(format!("status -D: instead of {gone:?} now {come:?}"));
        }
        if self.value != now.value {
            return Some(format!("the value block: {:?}", now.value));
        }
        let (before, after): (Vec<_>, Vec<_>) = (self.files.keys().collect(), now.files.keys().collect());
        if before != after {
            return Some(format!("files: instead of {before:?} now {after:?}"));
        }
        self.files.iter().zip(now.files.values()).find_map(|((path, before), after)| {
            // First the quick comparison: there are megabytes of it after every case.
            if before == after {
                return None;
            }
            let at = before.iter().zip(after).position(|(a, b)| a != b);
            let name = path.display();
            match at {
                Some(at) => Some(format!("{name} at {at:#x}")),
                None => (before.len() != after.len()).then(|| format!("{name}: {} bytes", after.len())),
            }
        })
    }
}

/// `status -D` without what changes by itself, the clients without process, and what counts commands.
fn masked_status(text: &str) -> String {
    const VOLATILE: [&str; 8] = [
        "monotime=",
        "helper_last_status=",
        "fd=",
        "cmd_last=",
        "renewal_last_attempt=",
        "renewal_last_success=",
        "acquire_last_attempt=",
        "acquire_last_success=",
    ];
    let mut kept = String::new();
    let mut skipping = false;
    for line in text.lines() {
        let detail = line.strip_prefix("    ");
        if detail.is_none() {
            skipping = line.starts_with("p -1 ");
        }
        // The original shows a process under the name of the command it sent last, if that is one of its main loop.
        let line = if line.starts_with("p ") {
            line.rsplit_once(' ').map_or(line, |(start, _)| start)
        } else {
            line
        };
        if !skipping && !detail.is_some_and(|detail| VOLATILE.iter().any(|word| detail.starts_with(word))) {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept
}

/// The files of the storage without the traces of renewals, and without the version of the index's lease, which every command
/// that changes an index takes and gives back.
fn files(scene: &Scene) -> BTreeMap<PathBuf, Vec<u8>> {
    let storage = scene.storage();
    let place = |area: u64| usize::try_from(storage.offset(area)).unwrap_or_else(|error| panic!("{error}"));
    let entries = std::fs::read_dir(storage.dir()).unwrap_or_else(|error| panic!("the storage: {error}"));
    let mut files = BTreeMap::new();
    for entry in entries {
        let path = entry.unwrap_or_else(|error| panic!("the storage: {error}")).path();
        let mut bytes = if path.is_file() { std::fs::read(&path).unwrap_or_default() } else { Vec::new() };
        if path == Path::new(storage.path()) {
            for lockspace in [0, place(area::SECOND)] {
                bytes[lockspace..][TIMESTAMP].fill(0);
                bytes[lockspace..][CHECKSUM].fill(0);
            }
            let lease = place(area::INDEX_LEASE);
            let free = bytes[lease..][TIMESTAMP] == [0; 8];
            bytes[lease..place(area::ENTRY)].fill(u8::from(free));
        }
        files.insert(path, bytes);
    }
    files
}

/// The target of a command: the connection itself, if it is not a registered one, and processes that are not registered.
pub(crate) fn nobody(arena: &Arena) -> Vec<(&'static str, u32, i32)> {
    vec![
        ("the own connection, not registered", SELF, -16),
        ("process 0", 0, -3),
        ("process 1", 1, -3),
        ("process -2", SELF - 1, -3),
        ("a dead process", arena.dead_pid(), -3),
    ]
}
