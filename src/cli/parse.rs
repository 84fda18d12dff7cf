//! What each action's options mean (command-line.md 2, 3, 7, 8, 9). Parsing fills plain values and never acts.

use super::UsageError;
use super::command::{
    AcquireArgs, ClientAction, Command, DEFAULT_IO_TIMEOUT, DirectAction, DirectHostId, DirectLease,
    DumpDetail, IndexAction, IndexArgs, InitTarget, NO_PID, OfflineIndexAction, ReadTarget, StatusOrder,
    WriteLeader,
};
use super::doctor;
use super::given::{Given, SWITCH, between};
use super::tokenizer::Long;
use crate::output::{FAILURE, SUCCESS};
use clap::Parser;
use sanlock_client::wire::flags::ConfigCommand;
use sanlock_daemon::config::{self, Overrides};
use sanlock_lease::limits::IO_TIMEOUT_SECONDS_MAX;
use sanlock_lease::name::Name;
use sanlock_lease::text::{DiskSpec, LockspaceSpec, RentrySpec, RindexSpec, TextError, strict};
use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// The command line, read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Parsed {
    /// What `-D` shows on stderr about lockspaces and resources, before anything else happens.
    pub(crate) debug_lines: Vec<String>,
    /// What to do.
    pub(crate) command: Command,
    /// `--json`: what is shown is printed as an object.
    pub(crate) json: bool,
    /// `--progress`: what is waited for is said, also where there is no terminal.
    pub(crate) progress: bool,
}

impl From<Command> for Parsed {
    fn from(command: Command) -> Self {
        Self { debug_lines: Vec::new(), command, json: false, progress: false }
    }
}

/// The largest mode of a request: 0 none, 1 FORCE, 2 GRACEFUL (disk-format.md 7.3). The original writes whatever it is given, and a holder does nothing
/// about a mode that is none of these.
const FORCE_MODE_MAX: u32 = 2;
/// Actions that came with 5.1.
const CLIENT_NOT_HERE: [&str; 3] = ["set_host", "init_host", "spawn"];
const DIRECT_NOT_HERE: [&str; 1] = ["init_host"];

/// The options with long names that an action of `client` knows.
fn client_long(action: &str) -> &'static [Long] {
    match action {
        "status" | "host_status" | "gets" | "inquire" | "read" => &[Long::Json],
        "renewal" => &[Long::Json, Long::Plot],
        "add_lockspace" | "rem_lockspace" | "shutdown" | "init" | "write" | "acquire" | "command" => {
            &[Long::Progress]
        }
        _ => &[],
    }
}

/// The same for `direct`.
fn direct_long(action: &str) -> &'static [Long] {
    match action {
        "read_leader" | "read" | "dump" => &[Long::Json],
        "init" | "acquire" | "acquire_id" => &[Long::Progress],
        _ => &[],
    }
}

/// Reads a command line, the program's name first.
///
/// # Errors
/// Anything that cannot be carried out as written.
pub(crate) fn parse(args: &[Vec<u8>]) -> Result<Parsed, UsageError> {
    let Some((word, rest)) = args.get(1..).and_then(<[_]>::split_first) else {
        return Ok(Command::Help { action_missing: false }.into());
    };
    match word.as_slice() {
        b"help" | b"--help" | b"-h" => Ok(Command::Help { action_missing: false }.into()),
        b"version" => Ok(Command::Version.into()),
        b"--version" | b"-V" => {
            let program = args.first().cloned().unwrap_or_default();
            Ok(Command::BuildInfo { program }.into())
        }
        b"daemon" => parse_daemon(&Given::read(rest, &[])?),
        b"demo" => parse_new("demo", rest, Command::Demo),
        b"who" => parse_new("who", rest, |args| Command::Who(Box::new(args))),
        b"top" => parse_new("top", rest, Command::Top),
        b"explain" => parse_new("explain", &words(rest), Command::Explain),
        b"fsck" => parse_new("fsck", rest, Command::Fsck).map_err(doctor::usage),
        b"check" => parse_new("check", rest, Command::Check).map_err(doctor::usage),
        b"exporter" => parse_new("exporter", rest, Command::Exporter),
        b"client" => parse_client(rest),
        b"direct" => parse_direct(rest),
        _ => parse_client(&args[1..]),
    }
}

/// The arguments of `explain`, none of which is an option but help: a slip in a negative number is to be told as that, not as an unknown option.
fn words(args: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let has_options = args.iter().any(|arg| arg.starts_with(b"--") || arg == b"-h");
    let end_of_options = (!has_options).then(|| b"--".to_vec());
    end_of_options.into_iter().chain(args.iter().cloned()).collect()
}

/// Reads the arguments of a command that the original does not have.
fn parse_new<T: Parser>(
    name: &str,
    args: &[Vec<u8>],
    command: fn(T) -> Command,
) -> Result<Parsed, UsageError> {
    let argv = std::iter::once(OsString::from(format!("sanlock {name}")))
        .chain(args.iter().map(|arg| OsString::from_vec(arg.clone())));
    match T::try_parse_from(argv) {
        Ok(args) => Ok(command(args).into()),
        Err(error) => {
            let text = error.render().to_string().into_bytes();
            Err(if error.use_stderr() {
                UsageError { stdout: Vec::new(), stderr: text, status: FAILURE }
            } else {
                UsageError { stdout: text, stderr: Vec::new(), status: SUCCESS }
            })
        }
    }
}

fn parse_daemon(given: &Given<'_>) -> Result<Parsed, UsageError> {
    let text = |letter: u8| match given.value(letter) {
        None => Ok(None),
        Some(value) => String::from_utf8(value.to_vec())
            .map(Some)
            .map_err(|_| UsageError::explain(&format!("-{}: the name is not UTF-8", char::from(letter)))),
    };
    // The daemon reports what lies outside of these ranges, and goes on without.
    let number = |letter, range: &RangeInclusive<u32>| given.number_or(letter, SWITCH, &between(range));
    let priority = |letter| given.number_or(letter, i32::MIN..=i32::MAX, &between(&config::PRIORITIES));
    let switch = |letter| given.switched(letter);
    let overrides = Overrides {
        foreground: given.debug,
        io_timeout_ignored: given.value(b'o').is_some(),
        quiet_fail: switch(b'Q')?,
        debug_renew: switch(b'R')?,
        renewal_history_size: number(b'H', &(0..=config::RENEWAL_HISTORY_MAX))?,
        logfile_priority: priority(b'L')?,
        syslog_priority: priority(b'S')?,
        uname: text(b'U')?,
        gname: text(b'G')?,
        max_worker_threads: number(b't', &(config::WORKER_THREADS_MIN..=config::WORKER_THREADS_MAX))?,
        kill_grace_seconds: number(b'g', &config::KILL_GRACE_SECONDS)?,
        use_watchdog: switch(b'w')?,
        high_priority: switch(b'h')?,
        mlock_level: number(b'l', &config::MLOCK_LEVELS)?,
        use_aio: switch(b'a')?.map(|on| u32::from(on != 0)),
        set_bitmap_seconds: given.number(b'b', SWITCH)?,
        our_host_name: given.value(b'e').map(<[u8]>::to_vec),
    };
    Ok(Command::Daemon(Box::new(overrides)).into())
}

fn unknown(kind: &str, action: &[u8]) -> UsageError {
    let mut text = format!("{kind} action \"").into_bytes();
    text.extend_from_slice(action);
    text.extend_from_slice(b"\" is unknown\n");
    UsageError::like_original(text)
}

/// An action that no release has.
fn no_action(kind: &str, action: &[u8]) -> UsageError {
    let name = String::from_utf8_lossy(action);
    unknown(kind, action).and_explain(&format!("{name:?} is no {kind} action; 'sanlock help' lists them"))
}

/// What to say about an action of a later release of the original than the one whose commands these are.
fn later(name: &str) -> String {
    format!("{name} is an action of sanlock 5.1, which this version does not have")
}

fn parse_client(args: &[Vec<u8>]) -> Result<Parsed, UsageError> {
    let Some((action, rest)) = args.split_first() else {
        return Ok(Command::Help { action_missing: true }.into());
    };
    let name = String::from_utf8_lossy(action);
    if CLIENT_NOT_HERE.contains(&name.as_ref()) {
        return Err(unknown("client", action).and_explain(&later(&name)));
    }
    let Some(build) = client_action(&name) else { return Err(no_action("client", action)) };
    let mut given = Given::read(rest, client_long(&name))?;
    let debug_lines = std::mem::take(&mut given.debug_lines);
    let (json, progress) = (given.json, given.progress);
    Ok(Parsed { debug_lines, command: Command::Client(build(&given)?), json, progress })
}

type Build<T> = fn(&Given<'_>) -> Result<T, UsageError>;

/// How the options of a client action are read.
fn client_action(name: &str) -> Option<Build<ClientAction>> {
    Some(match name {
        "status" => |g| Ok(ClientAction::Status { order: status_order(g), debug: g.debug }),
        "host_status" => |g| Ok(ClientAction::HostStatus { lockspace: lockspace_name(g), debug: g.debug }),
        "gets" => |g| Ok(ClientAction::Gets { hosts: g.switch(b'h')? }),
        "renewal" => |g| match (g.json, g.plot) {
            (true, Some(_)) => Err(UsageError::explain("renewal: --json and --plot: give one of them")),
            (_, plot) => {
                let plot = plot.map(|file| PathBuf::from(OsString::from_vec(file.to_vec())));
                Ok(ClientAction::Renewal { lockspace: lockspace_name(g), plot })
            }
        },
        "log_dump" => |_| Ok(ClientAction::LogDump),
        "shutdown" => |g| {
            let force = g.prefixed(b'f', u32::MAX)?.unwrap_or(0);
            Ok(ClientAction::Shutdown { force, wait: g.switched(b'w')?.unwrap_or(0) })
        },
        "init" | "write" => |g| {
            // 0 says nothing, as everywhere.
            let [n, m] = [g.number(b'n', SWITCH)?, g.number(b'm', SWITCH)?];
            let num_hosts = n.filter(|&n: &u32| n != 0).or(m);
            Ok(ClientAction::Init { target: init_target(g, num_hosts)?, sizes: g.sizes })
        },
        "read" => |g| {
            let (target, sizes) = (read_target(g), g.sizes);
            Ok(ClientAction::Read { target, sizes, owners: g.switch(b'h')?, debug: g.debug })
        },
        "align" => |g| {
            let spec = lockspace(g);
            Ok(ClientAction::Align { disk: DiskSpec { path: spec.path, offset: spec.offset } })
        },
        "add_lockspace" => {
            |g| Ok(ClientAction::AddLockspace { spec: lockspace(g), io_timeout: said_io_timeout(g)? })
        }
        "inq_lockspace" => |g| Ok(ClientAction::InqLockspace { spec: lockspace(g) }),
        "rem_lockspace" => |g| Ok(ClientAction::RemLockspace { spec: lockspace(g) }),
        "command" => |g| {
            let argv = g.command.map_or_else(Vec::new, <[_]>::to_vec);
            Ok(ClientAction::Command { acquire: acquire(g)?, argv })
        },
        "acquire" => |g| Ok(ClientAction::Acquire { pid: pid(g)?, acquire: acquire(g)? }),
        "release" => |g| {
            Ok(ClientAction::Release {
                pid: pid(g)?,
                resources: g.resources.clone(),
                lockspace: lockspace_name(g),
                all: g.switch(b'a')?,
                orphan: g.switch(b'O')?,
            })
        },
        "convert" => |g| Ok(ClientAction::Convert { pid: pid(g)?, resource: g.resources.first().cloned() }),
        "inquire" => |g| Ok(ClientAction::Inquire { pid: pid(g)?, debug: g.debug }),
        "set_config" => |g| {
            let orphans = g.switched(b'O')?.map(|on| on != 0);
            let used = g.switched(b'u')?.map(|on| on != 0);
            let config = match (orphans, used) {
                (Some(true), _) => Some(ConfigCommand::UsedByOrphans),
                (Some(false), _) => Some(ConfigCommand::UnusedByOrphans),
                (None, Some(true)) => Some(ConfigCommand::Used),
                (None, Some(false)) => Some(ConfigCommand::Unused),
                (None, None) => None,
            };
            Ok(ClientAction::SetConfig { lockspace: lockspace_name(g), config })
        },
        "format" => |g| Ok(ClientAction::Index { action: IndexAction::Format, args: index_to_format(g)? }),
        "create" => |g| Ok(ClientAction::Index { action: IndexAction::Create, args: index(g)? }),
        "delete" => |g| Ok(ClientAction::Index { action: IndexAction::Delete, args: index(g)? }),
        "lookup" => |g| Ok(ClientAction::Index { action: IndexAction::Lookup, args: index(g)? }),
        "update" => |g| Ok(ClientAction::Index { action: IndexAction::Update, args: index(g)? }),
        "rebuild" => |g| Ok(ClientAction::Index { action: IndexAction::Rebuild, args: index(g)? }),
        "request" => |g| {
            let resource = g.resources.first().cloned();
            Ok(ClientAction::Request { resource, force_mode: g.prefixed(b'f', FORCE_MODE_MAX)?.unwrap_or(0) })
        },
        "examine" => |g| Ok(ClientAction::Examine { target: read_target(g) }),
        "set_event" => |g| {
            let number = |letter| Ok(g.prefixed(letter, u64::MAX)?.unwrap_or(0));
            Ok(ClientAction::SetEvent {
                lockspace: lockspace_name(g),
                host_id: number(b'i')?,
                generation: number(b'g')?,
                event: number(b'e')?,
                data: number(b'd')?,
            })
        },
        "version" => |_| Ok(ClientAction::Version),
        _ => return None,
    })
}

fn parse_direct(args: &[Vec<u8>]) -> Result<Parsed, UsageError> {
    let Some((action, rest)) = args.split_first() else {
        return Ok(Command::Help { action_missing: true }.into());
    };
    let name = String::from_utf8_lossy(action);
    if DIRECT_NOT_HERE.contains(&name.as_ref()) {
        return Err(unknown("direct", action).and_explain(&later(&name)));
    }
    // The path of these two is taken as it stands, even when it begins with a dash.
    let (path, options) = match (name.as_ref(), rest.split_first()) {
        ("dump" | "next_free", Some((path, options))) => (Some(path.as_slice()), options),
        _ => (None, rest),
    };
    const ACTIONS: [&str; 15] = [
        "init",
        "read_leader",
        "read",
        "write_leader",
        "acquire",
        "release",
        "acquire_id",
        "renew_id",
        "release_id",
        "dump",
        "next_free",
        "format",
        "lookup",
        "update",
        "rebuild",
    ];
    if !ACTIONS.contains(&name.as_ref()) {
        return Err(no_action("direct", action));
    }
    let mut given = Given::read(options, direct_long(&name))?;
    let debug_lines = std::mem::take(&mut given.debug_lines);
    let action = direct_action(&name, path, &given)?;
    let (json, progress) = (given.json, given.progress);
    Ok(Parsed { debug_lines, command: Command::Direct(action), json, progress })
}

fn direct_action(name: &str, path: Option<&[u8]>, g: &Given<'_>) -> Result<DirectAction, UsageError> {
    let place = |error| {
        UsageError::explain(&format!("{name} {}: {error}", String::from_utf8_lossy(path.unwrap_or_default())))
    };
    let (sizes, geometry) = (g.sizes, g.sizes.geometry());
    Ok(match name {
        "init" => DirectAction::Init { target: init_target(g, g.number(b'n', SWITCH)?)?, sizes },
        "read_leader" => {
            DirectAction::ReadLeader { target: read_target(g), sizes, resource: !g.resources.is_empty() }
        }
        "read" => DirectAction::Read { target: read_target(g), sizes },
        "write_leader" => DirectAction::WriteLeader(WriteLeader {
            target: read_target(g),
            file: g.value(b'F').map(<[u8]>::to_vec),
            keep_checksum: g.prefixed(b'f', u32::MAX)?.is_some_and(|f| f != 0),
            sizes,
        }),
        "acquire" => DirectAction::Acquire(direct_lease(g)?),
        "release" => DirectAction::Release(direct_lease(g)?),
        "acquire_id" => DirectAction::AcquireId(direct_host_id(g)?),
        "renew_id" => DirectAction::RenewId(direct_host_id(g)?),
        "release_id" => DirectAction::ReleaseId(direct_host_id(g)?),
        "dump" => {
            let range = path.map(strict::dump_range).transpose().map_err(|error| match error {
                TextError::Empty { field: "path" } => UsageError::like_original("Device  not found.\n")
                    .and_explain("dump: no path given, use dump PATH[:OFFSET[:SIZE]]"),
                error => place(error),
            })?;
            let detail = match g.prefixed(b'f', u32::MAX)?.unwrap_or(0) {
                0 => DumpDetail::Owners,
                1 => DumpDetail::Requests,
                _ => DumpDetail::Ballots,
            };
            DirectAction::Dump { range, detail, geometry }
        }
        "format" => DirectAction::Index { action: OfflineIndexAction::Format, args: index_to_format(g)? },
        "lookup" => DirectAction::Index { action: OfflineIndexAction::Lookup, args: index(g)? },
        "update" => DirectAction::Index { action: OfflineIndexAction::Update, args: index(g)? },
        "rebuild" => DirectAction::Index { action: OfflineIndexAction::Rebuild, args: index(g)? },
        _ => DirectAction::NextFree {
            start: path.map(strict::next_free_start).transpose().map_err(place)?,
            geometry,
        },
    })
}

fn direct_lease(given: &Given<'_>) -> Result<DirectLease, UsageError> {
    Ok(DirectLease {
        resource: given.resources.first().cloned(),
        host_id: given.prefixed(b'i', u64::MAX)?,
        generation: given.prefixed(b'g', u64::MAX)?,
        io_timeout: io_timeout(given)?,
        sizes: given.sizes,
    })
}

fn direct_host_id(given: &Given<'_>) -> Result<DirectHostId, UsageError> {
    let host_name = given
        .value(b'e')
        // As with `daemon -e`, an empty name is none.
        .filter(|name| !name.is_empty())
        .map(Name::new)
        .transpose()
        .map_err(|error| UsageError::explain(&format!("-e: {error}")))?;
    Ok(DirectHostId {
        lockspace: lockspace(given),
        host_name,
        io_timeout: io_timeout(given)?,
        sizes: given.sizes,
    })
}

/// An index and one of its entries; what is not given is empty.
fn index(given: &Given<'_>) -> Result<IndexArgs, UsageError> {
    let read = |letter: char, value: &[u8], error| {
        UsageError::explain(&format!("-{letter} {}: {error}", String::from_utf8_lossy(value)))
    };
    let mut index = RindexSpec::default();
    for value in &given.indexes {
        let later = strict::rindex(value).map_err(|error| read('x', value, error))?;
        let RindexSpec { lockspace, disk: DiskSpec { path, offset } } = later;
        index.lockspace = lockspace;
        if has_part(value, INDEX_PATH) {
            index.disk.path = path;
        }
        if has_part(value, INDEX_OFFSET) {
            index.disk.offset = offset;
        }
    }
    let entry = match given.value(b'e') {
        Some(value) => strict::rentry(value).map_err(|error| read('e', value, error))?,
        None => RentrySpec::default(),
    };
    Ok(IndexArgs {
        index,
        entry,
        sizes: given.sizes,
        // Given at all, whatever its value: so the original has it, here only.
        clear: given.value(b'z').is_some(),
        num_hosts: given.number(b'n', SWITCH)?.unwrap_or(0),
    })
}

/// Parts of `-x`, counted from 0.
const INDEX_PATH: usize = 1;
const INDEX_OFFSET: usize = 2;

/// Whether an address has a part of this number, be it empty: one before which there are as many colons that no backslash takes the meaning from.
fn has_part(address: &[u8], at: usize) -> bool {
    let mut bytes = address.iter();
    let mut colons = 0;
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => _ = bytes.next(),
            b':' => colons += 1,
            _ => {}
        }
    }
    colons >= at
}

fn lockspace(given: &Given<'_>) -> LockspaceSpec {
    given.lockspace.clone().unwrap_or_default()
}

fn lockspace_name(given: &Given<'_>) -> Name {
    given.lockspace.as_ref().map(|spec| spec.name).unwrap_or_default()
}

fn status_order(given: &Given<'_>) -> StatusOrder {
    match given.value(b'o') {
        Some([b'p', ..]) => StatusOrder::ByProcess,
        Some([b's', ..]) => StatusOrder::ByLockspace,
        _ => StatusOrder::Unsorted,
    }
}

/// Seconds that `-o` gives, of which 0 are none; what does not fit the byte on disk would make other hosts miscalculate and is refused.
fn said_io_timeout(given: &Given<'_>) -> Result<Option<u32>, UsageError> {
    Ok(given.number(b'o', 0..=IO_TIMEOUT_SECONDS_MAX)?.filter(|&seconds| seconds > 0))
}

fn io_timeout(given: &Given<'_>) -> Result<u32, UsageError> {
    Ok(said_io_timeout(given)?.unwrap_or(DEFAULT_IO_TIMEOUT))
}

fn pid(given: &Given<'_>) -> Result<i32, UsageError> {
    Ok(given.number(b'p', NO_PID..=i32::MAX)?.unwrap_or(NO_PID))
}

fn acquire(given: &Given<'_>) -> Result<AcquireArgs, UsageError> {
    Ok(AcquireArgs {
        resources: given.resources.clone(),
        orphan: given.switch(b'O')?,
        persistent: given.switch(b'P')?,
        num_hosts: given.number(b'n', SWITCH)?.unwrap_or(0),
    })
}

/// Refuses to format where the offset is left empty. The original formats offset 0 then.
fn offset_is_given(letter: char, empty: Option<&[u8]>) -> Result<(), UsageError> {
    empty.map_or(Ok(()), |value| {
        Err(UsageError::explain(&format!(
            "-{letter} {}: the offset is empty; give it, 0 too, where something is formatted",
            String::from_utf8_lossy(value)
        )))
    })
}

/// An index to be formatted.
fn index_to_format(given: &Given<'_>) -> Result<IndexArgs, UsageError> {
    let offset_from = given.indexes.iter().rev().find(|value| has_part(value, INDEX_OFFSET));
    offset_is_given('x', offset_from.copied().filter(|value| strict::is_left_empty(value, INDEX_OFFSET)))?;
    index(given)
}

fn init_target(given: &Given<'_>, num_hosts: Option<u32>) -> Result<InitTarget, UsageError> {
    Ok(match read_target(given) {
        ReadTarget::Nothing => InitTarget::Nothing,
        ReadTarget::Lockspace(spec) => {
            offset_is_given('s', given.lockspace_without_offset)?;
            InitTarget::Lockspace { spec, io_timeout: io_timeout(given)? }
        }
        ReadTarget::Resource(spec) => {
            InitTarget::Resource { spec, num_hosts: num_hosts.unwrap_or(0), clear: given.switch(b'z')? }
        }
    })
}

fn read_target(given: &Given<'_>) -> ReadTarget {
    match (&given.lockspace, given.resources.first()) {
        (Some(spec), _) if !spec.path.is_empty() => ReadTarget::Lockspace(spec.clone()),
        (_, Some(spec)) => ReadTarget::Resource(spec.clone()),
        _ => ReadTarget::Nothing,
    }
}

#[cfg(test)]
mod tests;
