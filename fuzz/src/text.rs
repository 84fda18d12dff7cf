//! Text from outside: addresses, INQUIRE strings, `sanlock.conf`, command lines, files of fields.

use sanlock_daemon::config::{Config, Overrides};
use sanlock_lease::geometry::SectorSize;
use sanlock_lease::limits::{DISKS_MAX, NAME_BYTES, PATH_BYTES};
use sanlock_lease::record::RawLeader;
use sanlock_lease::text::{DiskSpec, PATH_LEN_MAX, ResourceSpec, TextError, library, number, path, strict};
use sanlock_wire::flags::ResourceFlags;
use sanlock_wire::strings;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use crate::data::Data;

/// Bytes of the longest argument that is tried; the kernel's own limit is far above all of ours.
const ARGUMENT_MAX: usize = 16 * 1024;

/// Addresses: resources, lockspaces, indexes, entries, ranges, as the command line, the C library and the protocol read them.
///
/// * Names, paths and numbers of disks are within their limits.
/// * What the strict reading accepts the lenient one reads the same.
/// * The protocol's and the library's reading of one string agree, error numbers included.
/// * What is printed again reads the same, but for backslashes in paths, which the format cannot carry.
pub fn addresses(text: &[u8]) {
    let text = text.get(..ARGUMENT_MAX).unwrap_or(text);
    let lenient = library::resource(text);
    if let Ok(strict) = strict::resource(text) {
        check_resource(&strict);
        // `1M` is a mebibyte for one and 1 for the other.
        if !text.contains(&b'M') {
            assert_eq!(lenient.as_ref(), Ok(&strict));
        }
    }
    if let Ok(spec) = &lenient {
        check_resource(spec);
        check_again(spec);
    }
    if !text.contains(&0) {
        same(strings::str_to_res(text), lenient);
        same_list(strings::state_to_args(text), library::state(text));
    }
    let fields = library::lockspace(text);
    assert!(fields.path.as_ref().is_none_or(|path| path.len() <= PATH_BYTES));
    if let Ok(strict) = strict::lockspace(text) {
        assert!(strict.path.as_ref().is_none_or(|path| path.len() <= PATH_LEN_MAX));
        let large = [strict.host_id, strict.offset].into_iter().flatten().any(|n| i64::try_from(n).is_err());
        if !text.contains(&b'M') && !large {
            assert_eq!(strict, fields);
        }
    }
    short(strict::rindex(text).map(|found| found.disk));
    short(strict::dump_range(text).map(|found| found.disk));
    short(strict::next_free_start(text));
    let _entry = strict::rentry(text);
    for read in [number::strict_decimal, number::strict_prefixed, number::strict_bytes] {
        if let Err(error) = read("number", text) {
            drop(error.to_string());
        }
    }
    for room in [0, 1, 2, 63, PATH_BYTES] {
        let escaped = path::export(text, room);
        assert!(escaped.len() <= room.saturating_sub(1) && path::import(text, room).path.len() <= room);
        if room == PATH_BYTES && !text.contains(&b'\\') && escaped.len() < PATH_BYTES / 2 {
            let plain = text.split(|byte| *byte == 0).next().unwrap_or_default();
            assert_eq!(path::import(&escaped, room).path, plain);
        }
    }
}

fn short(found: Result<DiskSpec, TextError>) {
    match found {
        Ok(disk) => assert!(disk.path.len() <= PATH_LEN_MAX),
        Err(error) => {
            assert!(error.code() < 0);
            drop(error.to_string());
        }
    }
}

fn check_resource(spec: &ResourceSpec) {
    assert!(spec.disks.len() <= DISKS_MAX);
    assert!(spec.lockspace.as_bytes().len() <= NAME_BYTES && spec.name.as_bytes().len() <= NAME_BYTES);
    assert!(spec.disks.iter().all(|disk| (1..=PATH_LEN_MAX).contains(&disk.path.len())));
}

/// Names are not escaped by the library, so only names without special bytes come back.
fn check_again(spec: &ResourceSpec) {
    let special = |name: &[u8]| name.iter().any(|byte| b"\\: ".contains(byte));
    let plain = |disk: &DiskSpec| !disk.path.contains(&b'\\') && disk.path.len() < PATH_BYTES / 2;
    // Without a disk the version makes a third field, which nobody reads.
    if spec.disks.is_empty()
        || special(spec.lockspace.as_bytes())
        || special(spec.name.as_bytes())
        || !spec.disks.iter().all(plain)
    {
        return;
    }
    let Ok(text) = spec.to_text() else { panic!("{spec:?} has no text") };
    let lver = if spec.shared { None } else { Some(spec.lver.unwrap_or(0)) };
    assert_eq!(library::resource(&text), Ok(ResourceSpec { lver, ..spec.clone() }));
}

fn same(
    wire: Result<sanlock_wire::ResourceSpec, strings::StringError>,
    lease: Result<ResourceSpec, TextError>,
) {
    match (wire, lease) {
        (Ok(wire), Ok(lease)) => same_resource(&wire, &lease),
        (Err(wire), Err(lease)) => assert_eq!(wire.code(), lease.code(), "{wire}, {lease}"),
        (wire, lease) => panic!("{wire:?}, but {lease:?}"),
    }
}

fn same_list(
    wire: Result<Vec<sanlock_wire::ResourceSpec>, strings::StringError>,
    lease: Result<Vec<ResourceSpec>, TextError>,
) {
    match (wire, lease) {
        (Ok(wire), Ok(lease)) => {
            assert_eq!(wire.len(), lease.len());
            wire.iter().zip(&lease).for_each(|(wire, lease)| same_resource(wire, lease));
            // As a client shows it, and a daemon would send it.
            let Ok(text) = strings::args_to_state(&wire) else { return };
            assert!(text.len() <= (strings_max() + 1) * wire.len());
        }
        // Only the protocol has a limit for an item that is to be parsed.
        (Err(strings::StringError::TooLong { .. }), _) => {}
        (Err(wire), Err(lease)) => assert_eq!(wire.code(), lease.code(), "{wire}, {lease}"),
        (wire, lease) => panic!("{wire:?}, but {lease:?}"),
    }
}

const fn strings_max() -> usize {
    sanlock_wire::limits::MAX_STATE_ITEM
}

fn same_resource(wire: &sanlock_wire::ResourceSpec, lease: &ResourceSpec) {
    let resource = wire.resource();
    let flags = ResourceFlags::from_bits_truncate(resource.flags.get());
    assert_eq!(resource.lockspace_name.name_bytes(), lease.lockspace.as_bytes());
    assert_eq!(resource.name.name_bytes(), lease.name.as_bytes());
    assert_eq!(flags.contains(ResourceFlags::SHARED), lease.shared);
    assert_eq!(flags.contains(ResourceFlags::LVER).then(|| resource.lver.get()), lease.lver);
    assert_eq!(wire.disks().len(), lease.disks.len());
    for (ours, theirs) in wire.disks().iter().zip(&lease.disks) {
        assert_eq!((ours.path.path(), ours.offset.get()), (Ok(theirs.path.as_slice()), theirs.offset));
    }
}

/// `sanlock.conf`, with what the daemon makes of it.
///
/// * The number of warnings and the length of each are bounded.
/// * Whatever is set stays within the range that the rest of the daemon relies on.
pub fn configuration(file: &[u8]) {
    let (settings, warnings) = sanlock_daemon::conf::parse(file);
    assert!(warnings.len() <= sanlock_daemon::conf::WARNINGS_MAX + 1);
    assert!(settings.iter().all(|setting| !setting.key.is_empty() && !setting.value.is_empty()));
    let mut config = Config::default();
    config.apply_file(file);
    assert!(config.warnings.len() <= 2 * (sanlock_daemon::conf::WARNINGS_MAX + 1));
    for warning in &config.warnings {
        assert!(warning.to_string().len() < 1000, "{warning}");
    }
    assert!((4..=3600).contains(&config.fire.secs()) && (1..=255).contains(&config.io_timeout.secs()));
    assert!(config.kill_grace_seconds() <= 3600 || config.kill_grace.is_some());
    let _name = config.our_host_name.map(|name| name.to_string());
    if let Ok(lockspace) = sanlock_lease::name::Name::new(file.get(..8).unwrap_or_default()) {
        let _program = config.on_fail.program(&lockspace);
    }
}

/// Command lines: arguments separated by NUL; a first byte of 1 makes it one of wdmd.
///
/// * Every command line is a command or a complaint.
/// * What is parsed is within the limits of one request.
pub fn command_line(data: &[u8]) {
    let data = data.get(..ARGUMENT_MAX).unwrap_or(data);
    if let Some(wdmd) = data.strip_prefix(&[1]) {
        let args = wdmd.split(|byte| *byte == 0).map(|arg| OsString::from_vec(arg.to_vec()));
        match crate::wdmd_cli::parse(args) {
            Err(complaint) => assert!(!complaint.is_empty()),
            Ok(crate::wdmd_cli::Command::TryTimeout { timeout, .. }) => assert!(timeout > 0),
            Ok(_) => {}
        }
        return;
    }
    let args: Vec<Vec<u8>> = std::iter::once(b"sanlock".to_vec())
        .chain(data.split(|byte| *byte == 0).map(<[u8]>::to_vec))
        .collect();
    match crate::cli::parse(&args) {
        Err(error) => assert!(
            !error.stdout.is_empty() || !error.stderr.is_empty() || error.status != 0,
            "something is said, or it is a failure"
        ),
        Ok(parsed) => {
            drop(parsed.debug_lines);
            use crate::cli::command::{ClientAction, Command};
            match parsed.command {
                Command::Daemon(overrides) => check_overrides(&overrides),
                Command::Client(
                    ClientAction::Acquire { acquire, .. } | ClientAction::Command { acquire, .. },
                ) => {
                    assert!(acquire.resources.len() <= 8);
                    acquire.resources.iter().for_each(check_resource);
                }
                Command::Client(ClientAction::Release { resources, .. }) => assert!(resources.len() <= 8),
                _ => {}
            }
        }
    }
}

fn check_overrides(overrides: &Overrides) {
    let mut config = Config::default();
    config.apply_overrides(overrides);
    assert!(config.our_host_name.is_none_or(|name| name.as_bytes().len() <= NAME_BYTES));
}

/// Files of fields as `direct write_leader` reads them; the first byte chooses resource or lockspace.
///
/// What is accepted and applied, printed and read again gives the same record.
pub fn fields(data: &[u8]) {
    let mut data = Data::new(data);
    let resource = data.one_in(2);
    let Ok(edits) = crate::fields::Edits::read(data.rest(), resource) else { return };
    assert!(edits.ignored.len() <= 64 + data.rest().len() * 20);
    let mut record = RawLeader::zeroed();
    edits.apply(&mut record);
    assert_eq!(
        edits.sector_size().map_or(0, SectorSize::bytes),
        match record.sector_size.get() {
            size @ (512 | 4096) => size,
            _ => 0,
        }
    );
    record.checksum = edits.checksum.unwrap_or(0).into();
    let text = crate::fields::text(&record, resource);
    let names = [record.space_name, record.resource_name];
    let readable = |name: &[u8; NAME_BYTES]| {
        let text = name.split(|byte| *byte == 0).next().unwrap_or_default();
        !text.is_empty() && !text.iter().any(u8::is_ascii_whitespace)
    };
    if names.iter().all(readable) {
        let again = crate::fields::Edits::read(&text, resource).unwrap_or_else(|error| panic!("{error}"));
        let mut copy = RawLeader::zeroed();
        again.apply(&mut copy);
        copy.checksum = again.checksum.unwrap_or(0).into();
        assert_eq!(copy, record);
    }
}

/// What daemon and helper tell each other.
pub fn helper(data: &[u8]) {
    use crate::helper_message::{Order, Report};
    if let Some(order) = Order::decode(data) {
        assert_eq!(Order::decode(&order.encode()), Some(order));
    }
    if let Some(report) = Report::decode(data) {
        assert_eq!(Report::decode(&report.encode()), Some(report));
    }
}
