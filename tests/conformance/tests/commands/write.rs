//! WRITE_LOCKSPACE, WRITE_RESOURCE and ALIGN (socket-protocol.md 7.12, 7.17, 7.18).

use std::fs::File;
use std::os::unix::fs::FileExt;

use sanlock_conformance::raw::{cmd, disk, flag};
use sanlock_conformance::{Host, Lockspace, Program, Resource, Storage, StorageKind};

use crate::Table;

/// Bytes of a file.
fn bytes_at(path: &str, offset: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let read = File::open(path).and_then(|file| file.read_exact_at(&mut bytes, offset));
    read.unwrap_or_else(|error| panic!("{path} at {offset}: {error}"));
    bytes
}

/// num_hosts of a leader record.
fn num_hosts(path: &str, offset: u64) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes_at(path, offset + 16, 8));
    u64::from_le_bytes(field)
}

fn write_lockspace(host: &Host, lockspace: &Lockspace, io_timeout: u32) -> i32 {
    host.connect().request(cmd::WRITE_LOCKSPACE, 0, 5, io_timeout, &lockspace.encode()).result()
}

fn write_resource(host: &Host, resource: &Resource, (data, data2): (u32, u32), flags: u32) -> i32 {
    host.connect().request(cmd::WRITE_RESOURCE, flags, data, data2, &resource.encode()).result()
}

#[test]
fn what_write_lockspace_takes_and_refuses() {
    let Some(program) = Program::under_test() else { return };
    let storage = Storage::file();
    let host = Host::start(program, "host1");
    let path = storage.extra_file("ls", 0);
    let with = |name: &str, flags: u32| Lockspace { flags, ..Lockspace::new(name, 1, &path, 0) };
    let read = |lockspace: &Lockspace| {
        let (result, io_timeout, read) = host.connect().read_lockspace(lockspace);
        (result, io_timeout, read.flags)
    };
    let mut table = Table::default();
    let plain = with("LS", 0);
    table.expect("without flags", write_lockspace(&host, &plain, 0), 0);
    table.expect("io timeout 0 is 10", read(&plain), (0, 10, flag::ALIGN1M | flag::SECTOR512));
    table.expect(
        "the file has grown to one area",
        File::open(&path).unwrap().metadata().unwrap().len(),
        1 << 20,
    );
    table.expect("another io timeout", write_lockspace(&host, &plain, 7), 0);
    table.expect("as written", read(&plain), (0, 7, flag::ALIGN1M | flag::SECTOR512));
    let small = flag::ALIGN2M | flag::SECTOR4K;
    table.expect("sizes", write_lockspace(&host, &with("LS", small), 1), 0);
    table.expect("as asked for", read(&with("LS", 0)), (0, 1, small));
    table.expect("no name", write_lockspace(&host, &with("", 0), 1), 0);
    let before = bytes_at(&path, 0, 1 << 20);
    for (case, request, expected) in [
        ("sector alone", with("X", flag::SECTOR512), -1),
        ("align alone", with("X", flag::ALIGN1M), -1),
        ("no pair", with("X", flag::ALIGN8M | flag::SECTOR512), -1),
        ("no path", Lockspace::new("X", 1, "", 0), -19),
        ("missing path", Lockspace::new("X", 1, "/nonexistent/x", 0), -19),
    ] {
        table.expect(case, write_lockspace(&host, &request, 1), expected);
    }
    table.expect("what is refused writes nothing", bytes_at(&path, 0, 1 << 20) == before, true);
}

#[test]
fn what_write_resource_takes_and_refuses() {
    let Some(program) = Program::under_test() else { return };
    let storage = Storage::file();
    let host = Host::start(program, "host1");
    let path = storage.path();
    let resource = storage.resource(1);
    let offset = storage.offset(1);
    let mut table = Table::default();
    // data is the number of hosts, data2 nothing.
    for ((data, data2), expected) in
        [((0, 0), 2000), ((50, 0), 50), ((0, 7), 2000), ((50, 7), 50), ((2001, 0), 2000), ((1, 0), 1)]
    {
        table.expect(&format!("{data} {data2}"), write_resource(&host, &resource, (data, data2), 0), 0);
        table.expect(&format!("{data} {data2}, hosts"), num_hosts(path, offset), expected);
    }
    let read = |resource: &Resource| host.connect().read_resource(resource).0;
    table.expect("a lease", read(&resource), 0);
    table.expect("cleared", write_resource(&host, &resource, (0, 0), flag::WRITE_CLEAR), 0);
    table.expect("none", read(&resource), -223);
    let two = Resource {
        num_disks: 2,
        disks: [2, 3].map(|n| (path.as_bytes().to_vec(), storage.offset(n))).into(),
        ..resource.clone()
    };
    table.expect("two disks", write_resource(&host, &two, (0, 0), 0), 0);
    let both = [2, 3].map(|n| num_hosts(path, storage.offset(n)));
    table.expect("both are written", both, [2000, 2000]);
    for (case, request, expected) in [
        ("no disk", Resource { num_disks: 0, disks: vec![], ..resource.clone() }, -34),
        ("five disks", Resource { num_disks: 5, ..resource.clone() }, -34),
        ("missing path", Resource::new("LS", "R1", "/nonexistent/x", 0), -2),
        ("align alone", Resource { flags: flag::ALIGN1M, ..resource.clone() }, -1),
        ("no pair", Resource { flags: flag::ALIGN8M | flag::SECTOR512, ..resource.clone() }, -1),
    ] {
        table.expect(case, write_resource(&host, &request, (0, 0), 0), expected);
    }
    if program == Program::Ours {
        table.expect("a negative number", write_resource(&host, &resource, (u32::MAX, 0), 0), -22);
    }
}

#[test]
fn align_follows_the_sector_size() {
    let Some(program) = Program::under_test() else { return };
    let host = Host::start(program, "host1");
    let align = |path: &str| host.connect().request(cmd::ALIGN, 0, 0, 0, &disk(path.as_bytes(), 0)).result();
    for kind in StorageKind::ALL {
        let Some(storage) = Storage::new(kind) else { continue };
        assert_eq!(u64::try_from(align(storage.path())), Ok(kind.align_size()), "{kind:?}");
    }
    assert_eq!((align(""), align("/nonexistent/x")), (-19, -19));
}

#[test]
fn sectors_below_the_block_size_are_refused_before_anything_is_written() {
    let Some(program) = Program::under_test() else { return };
    let Some(storage) = Storage::new(StorageKind::Loop4096) else { return };
    let host = Host::start(program, "host1");
    let small = flag::ALIGN1M | flag::SECTOR512;
    let lockspace = Lockspace { flags: small, ..Lockspace::new("LS", 1, storage.path(), 0) };
    let before = bytes_at(storage.path(), 0, 1 << 20);
    assert_eq!(write_lockspace(&host, &lockspace, 1), -22);
    if program == Program::Ours {
        assert!(bytes_at(storage.path(), 0, 1 << 20) == before, "the original leaves half a lockspace");
    }
}
