//! The one-shot commands on lease files that sanlock 3.8.5 wrote. The expected answers are those that its daemon gave to the
//! same requests; where ours differ on purpose, the test's name or a comment says so.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use sanlock_blockio::EngineKind;
use sanlock_daemon::oneshot::{
    Io, Limits, ToolError, align, read_lockspace, read_request, read_resource, read_resource_owners,
    write_lockspace, write_resource,
};
use sanlock_lease::geometry::SectorSize;
use sanlock_lease::record::RawLeader;
use sanlock_wire::Name;
use sanlock_wire::flags::WriteFlags;
use sanlock_wire::types::{Disk, Lockspace, Resource, ResourceSpec};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const NO_LEASE: i32 = -223;

/// Host id, generation, timestamp.
type Holder = (u64, u64, u64);

/// A directory of lease files, and what reaches them.
struct Bench {
    dir: TempDir,
    io: Io,
}

impl Bench {
    fn new() -> Self {
        let io = Io::new(EngineKind::probe().unwrap(), Limits::default()).unwrap();
        Self { dir: tempfile::tempdir().unwrap(), io }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        std::fs::write(self.path(name), bytes).unwrap();
        self.path(name)
    }

    fn image(&self, name: &str) -> PathBuf {
        self.file(name, &recorded(name))
    }

    /// The image with a leader changed and its checksum made right again.
    fn changed(&self, name: &str, sector: usize, change: impl FnOnce(&mut RawLeader)) -> PathBuf {
        let mut bytes = recorded(name);
        let sector = &mut bytes[sector * 512..(sector + 1) * 512];
        let mut leader = RawLeader::from_sector(sector);
        change(&mut leader);
        leader.seal();
        leader.encode(None, sector);
        self.file("changed", &bytes)
    }

    /// Result or code, and of a good result: name, host id, flags, io timeout.
    fn ls(&mut self, path: &Path, name: &str, id: u64, flags: u32) -> Result<(Vec<u8>, u64, u32, u32), i32> {
        read_lockspace(&mut self.io, &lockspace(name, id, path, 0, flags))
            .map(|(ls, io_timeout)| {
                (ls.name.name_bytes().to_vec(), ls.host_id.get(), ls.flags.get(), io_timeout)
            })
            .map_err(code)
    }

    /// Names, version, flags.
    fn res(
        &mut self,
        path: &Path,
        names: [&str; 2],
        flags: u32,
    ) -> Result<(Vec<u8>, Vec<u8>, u64, u32), i32> {
        read_resource(&mut self.io, &resource(names, &[path], flags))
            .map(|r| {
                (
                    r.lockspace_name.name_bytes().to_vec(),
                    r.name.name_bytes().to_vec(),
                    r.lver.get(),
                    r.flags.get(),
                )
            })
            .map_err(code)
    }

    /// Version, flags, holders.
    fn owners(&mut self, path: &Path, names: [&str; 2], flags: u32) -> Result<(u64, u32, Vec<Holder>), i32> {
        read_resource_owners(&mut self.io, &resource(names, &[path], flags))
            .map(|(r, hosts)| {
                assert!(hosts.iter().all(|host| host.flags.get() == 0 && host.io_timeout.get() == 0));
                let hosts = hosts
                    .iter()
                    .map(|host| (host.host_id.get(), host.generation.get(), host.timestamp.get()));
                (r.lver.get(), r.flags.get(), hosts.collect())
            })
            .map_err(code)
    }
}

/// Whoever looks for requests reads one lease after another, and gets stuck at a disk that is silent: what it has read must not be open until then,
/// as whoever releases such a lease meanwhile wants its volume to himself.
#[test]
fn a_look_for_a_request_leaves_no_disk_open() {
    let mut bench = Bench::new();
    let path = bench.image("v38-res-512-1m-ex");
    let lease = resource(["golden-ls", "golden-res"], &[&path], 0);
    for _ in 0..10 {
        read_request(&mut bench.io, &lease, SectorSize::B512).unwrap();
    }
    let open = || {
        let fds = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        fds.filter(|fd| std::fs::read_link(fd.path()).is_ok_and(|to| to == path)).count()
    };
    let end = Instant::now() + Duration::from_secs(60);
    while open() > 0 && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(open(), 0);
}

fn code(error: ToolError) -> i32 {
    assert!(!error.to_string().is_empty());
    error.code().0
}

fn recorded(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/disk").join(format!("{name}.img.gz"));
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_end(&mut bytes).unwrap();
    bytes
}

fn disk(path: &Path, offset: u64) -> Disk {
    Disk::new(path.as_os_str().as_encoded_bytes(), offset).unwrap()
}

fn lockspace(name: &str, id: u64, path: &Path, offset: u64, flags: u32) -> Lockspace {
    let mut ls = Lockspace::new(Name::new(name).unwrap(), id, disk(path, offset));
    ls.flags = flags.into();
    ls
}

fn resource(names: [&str; 2], paths: &[&Path], flags: u32) -> ResourceSpec {
    let [lockspace, name] = names.map(|name| Name::new(name).unwrap());
    let mut resource = Resource::new(lockspace, name);
    resource.flags = flags.into();
    ResourceSpec::new(resource, paths.iter().map(|path| disk(path, 0)).collect()).unwrap()
}

/// Bytes 20 to 23 of the request record: the original leaves memory contents there (disk-format.md 3, rule 6).
fn without_request_padding(mut bytes: Vec<u8>, sector: usize) -> Vec<u8> {
    bytes[sector + 20..sector + 24].fill(0);
    bytes
}

#[test]
fn lockspace_records_by_host_id() {
    let mut bench = Bench::new();
    let path = bench.image("v38-ls-512-1m-joined-1-2000");
    let small = bench.image("v38-ls-4k-2m-init");
    let name = b"golden-ls".to_vec();
    for hint in [0, 0x10, 0x100, 0x110] {
        for (asked, id) in [(0, 1), (1, 1), (2, 2), (9, 9), (2000, 2000)] {
            assert_eq!(
                bench.ls(&path, "", asked, hint),
                Ok((name.clone(), id, 0x110, 1)),
                "{asked} {hint:#x}"
            );
        }
        assert_eq!(bench.ls(&path, "", 2001, hint), Err(NO_LEASE));
        assert_eq!(bench.ls(&path, "", u64::MAX, hint), Err(NO_LEASE));
    }
    for hint in [0, 0x200, 0x220, 0x280] {
        for (asked, id) in [(0, 1), (3, 3), (9, 9), (500, 500)] {
            assert_eq!(bench.ls(&small, "golden-ls", asked, hint), Ok((name.clone(), id, 0x220, 10)));
        }
        assert_eq!(bench.ls(&small, "golden-ls", 501, hint), Err(NO_LEASE), "{hint:#x}");
    }
    let long = bench.image("v38-ls-512-1m-names48-joined-3");
    let name = "lockspace-name-of-exactly-forty-eight-bytes-0123";
    assert_eq!(bench.ls(&long, name, 3, 0).unwrap().0, name.as_bytes());
    assert_eq!(bench.ls(&long, &name[..47], 3, 0), Err(-226));
}

/// The original corrects them only where the wrong place happens to hold a record; for others it says -223 or -90.
#[test]
fn wrong_size_hints_of_lockspaces_are_corrected() {
    let mut bench = Bench::new();
    let path = bench.image("v38-ls-512-1m-joined-1-2000");
    let small = bench.image("v38-ls-4k-2m-init");
    for id in [1, 2, 9, 2000] {
        assert_eq!(bench.ls(&path, "", id, 0x220).unwrap().2, 0x110, "{id}");
        assert_eq!(bench.ls(&path, "", id, 0x280).unwrap().1, id);
    }
    for id in [1, 3, 9, 500] {
        assert_eq!(bench.ls(&small, "", id, 0x110).unwrap().2, 0x220, "{id}");
    }
}

#[test]
fn flags_that_are_no_sizes_are_kept() {
    let mut bench = Bench::new();
    let path = bench.image("v38-ls-512-1m-joined-1-2000");
    assert_eq!(bench.ls(&path, "", 1, 0x403).unwrap().2, 0x513);
    let path = bench.image("v38-res-512-1m-ex");
    assert_eq!(bench.res(&path, ["", ""], 0x407).unwrap().3, 0x517);
}

#[test]
fn lockspaces_that_are_none() {
    let mut bench = Bench::new();
    let name = "v38-ls-512-1m-joined-1-2000";
    let path = bench.image(name);
    assert_eq!(bench.ls(&path, "x", 1, 0), Err(-226));
    assert_eq!(bench.ls(&path, "x", 2001, 0), Err(NO_LEASE));
    for missing in ["/nonexistent/lease", "", "/", "/dev/null"] {
        assert_eq!(bench.ls(Path::new(missing), "", 1, 0), Err(-19), "{missing:?}");
    }
    let at = |io: &mut Io, offset| read_lockspace(io, &lockspace("", 2, &path, offset, 0)).map_err(code);
    assert_eq!(at(&mut bench.io, 1 << 20).unwrap_err(), -90);
    assert_eq!(at(&mut bench.io, 100).unwrap_err(), -22);
    for huge in [u64::MAX, u64::MAX - 511, i64::MAX.unsigned_abs() - 511] {
        assert!(at(&mut bench.io, huge).unwrap_err() < 0);
        assert!(read_lockspace(&mut bench.io, &lockspace("", 2, &path, huge, 0x110)).is_err());
    }
    assert_eq!(at(&mut bench.io, 512).unwrap().0.flags.get(), 0x110, "any place that the disk can address");

    let bad = bench.changed(name, 0, |leader| leader.magic = 0.into());
    assert_eq!(bench.ls(&bad, "", 2, 0), Err(NO_LEASE));
    assert_eq!(bench.ls(&bad, "", 2, 0x110).unwrap().1, 2, "a hint saves looking at the first record");
    let bad = bench.changed(name, 0, |leader| leader.version = 0x2_0000.into());
    assert_eq!(bench.ls(&bad, "", 1, 0), Err(-224));
    let bad = bench.changed(name, 0, |leader| leader.sector_size = 1024.into());
    assert_eq!(bench.ls(&bad, "", 1, 0), Err(-22));
    assert_eq!(bench.ls(&bad, "", 1, 0x110), Err(-22), "the original: 0, with flags 0x10");
    let odd = bench.changed(name, 0, |leader| leader.flags = 0x80.into());
    assert_eq!(bench.ls(&odd, "", 1, 0).unwrap().2, 0x180);
    let old = bench.changed(name, 0, |leader| leader.flags = 0.into());
    assert_eq!(bench.ls(&old, "", 1, 0).unwrap().2, 0x110);

    let mut bytes = recorded(name);
    bytes[152] ^= 1;
    let bad = bench.file("checksum", &bytes);
    assert_eq!(bench.ls(&bad, "", 1, 0), Err(-229));
    assert_eq!(bench.ls(&bad, "", 2, 0).unwrap().1, 2);
    let short = bench.file("short", &bytes[..2048]);
    assert_eq!(bench.ls(&short, "", 1, 0), Err(-90));
    assert_eq!(bench.ls(&short, "", 2, 0x110).unwrap().1, 2);
    assert_eq!(bench.ls(&short, "", 9, 0x110), Err(-90));
}

/// 3.8.5 answers -224.
#[test]
fn leases_of_later_programs_are_shown() {
    let mut bench = Bench::new();
    let path = bench.changed("v38-ls-512-1m-joined-1-2000", 0, |leader| leader.version = 0x5_0000.into());
    assert_eq!(bench.ls(&path, "", 1, 0).unwrap().1, 1);
    let path = bench.changed("v38-res-512-1m-ex", 0, |leader| leader.version = 0x7_0000.into());
    assert_eq!(bench.res(&path, ["", ""], 0).unwrap().2, 1);
}

#[test]
fn resources_with_any_hint() {
    let mut bench = Bench::new();
    for (image, name, lver, flags) in [
        ("v38-res-512-1m-ex", "res-ex", 1, 0x110),
        ("v38-res-512-1m-sh2", "res-sh", 2, 0x110),
        ("v38-res-4k-2m-init", "res-4k", 0, 0x220),
        ("v38-res-4k-8m-ex", "res-4k", 1, 0x280),
    ] {
        let path = bench.image(image);
        for hint in [0, 0x100, 0x110, 0x220, 0x280] {
            let expected = (b"golden-ls".to_vec(), name.as_bytes().to_vec(), lver, flags);
            assert_eq!(bench.res(&path, ["", ""], hint), Ok(expected), "{image} {hint:#x}");
        }
    }
}

#[test]
fn resources_that_are_none() {
    let mut bench = Bench::new();
    let path = bench.image("v38-res-512-1m-ex");
    assert_eq!(bench.res(&path, ["x", ""], 0), Err(-226));
    assert_eq!(bench.res(&path, ["", "x"], 0), Err(-227));
    let cleared = bench.image("v38-res-512-1m-cleared");
    assert_eq!(bench.res(&cleared, ["", ""], 0), Err(NO_LEASE));
    let lockspace = bench.image("v38-ls-512-1m-init");
    assert_eq!(bench.res(&lockspace, ["", ""], 0), Err(NO_LEASE));
    for missing in ["/nonexistent/lease", ""] {
        assert_eq!(bench.res(Path::new(missing), ["", ""], 0), Err(-2), "{missing:?}");
    }
    assert_eq!(bench.res(Path::new("/dev/null"), ["", ""], 0), Err(-22));
    let read = |io: &mut Io, paths: &[&Path]| read_resource(io, &resource(["", ""], paths, 0)).map_err(code);
    assert_eq!(read(&mut bench.io, &[]), Err(-34));
    assert_eq!(read(&mut bench.io, &[&path, Path::new("/nonexistent/lease")]), Err(-2));
    assert_eq!(read(&mut bench.io, &[&path, &cleared]).unwrap().num_disks.get(), 2);

    for sector_size in [0, 1024] {
        let odd = bench.changed("v38-res-512-1m-ex", 0, |leader| leader.sector_size = sector_size.into());
        assert_eq!(bench.res(&odd, ["", ""], 0x112).unwrap().3, 0x2, "no sizes to tell");
    }
    let odd = bench.changed("v38-res-512-1m-ex", 0, |leader| leader.flags = 0x80.into());
    assert_eq!(bench.res(&odd, ["", ""], 0).unwrap().3, 0x180);
    let short = bench.file("short", &recorded("v38-res-512-1m-ex")[..2048]);
    assert_eq!(bench.res(&short, ["", ""], 0), Err(-90));
    assert_eq!(bench.res(&short, ["", ""], 0x110).unwrap().2, 1);
}

#[test]
fn owners_and_shared_holders() {
    let mut bench = Bench::new();
    let both = vec![(1, 1, 0), (2000, 1, 0)];
    for (image, name, lver, shared, hosts) in [
        ("v38-res-512-1m-init", "res-init", 0, 0, vec![]),
        ("v38-res-512-1m-ex", "res-ex", 1, 0, vec![(1, 1, 4559)]),
        ("v38-res-512-1m-ex-released", "res-ex", 1, 0, vec![]),
        ("v38-res-512-1m-sh2", "res-sh", 2, 0x4, both.clone()),
        ("v38-res-512-1m-convert-refused", "res-conv", 3, 0x4, both),
    ] {
        let path = bench.image(image);
        for hint in [0, 0x10, 0x100, 0x110] {
            let expected = |flags| Ok((lver, flags, hosts.clone()));
            let mut owners = |flags| bench.owners(&path, ["golden-ls", name], flags);
            assert_eq!(owners(hint), expected(hint | shared), "{image} {hint:#x}");
            assert_eq!(owners(hint | 0x4), expected(hint | 0x4), "{image} {hint:#x}, asked with SHARED");
        }
        assert_eq!(bench.owners(&path, ["golden-ls", name], 0x280), Err(-90));
        assert_eq!(bench.owners(&path, ["golden-ls", name], 0x210), Err(-22));
    }
    let path = bench.image("v38-res-4k-8m-ex");
    for hint in [0, 0x200, 0x280] {
        let expected = (1, hint, vec![(3, 1, 4583)]);
        assert_eq!(bench.owners(&path, ["golden-ls", "res-4k"], hint), Ok(expected));
    }
    for hint in [0x110, 0x220] {
        assert_eq!(bench.owners(&path, ["golden-ls", "res-4k"], hint), Err(-22));
    }
    let path = bench.image("v38-res-512-1m-names48-ex");
    let names = [
        "lockspace-name-of-exactly-forty-eight-bytes-0123",
        "resource-name-of-exactly-forty-eight-bytes-01234",
    ];
    assert_eq!(bench.owners(&path, names, 0), Ok((1, 0, vec![(3, 1, 4569)])));
}

#[test]
fn owners_of_what_is_no_lease() {
    let mut bench = Bench::new();
    let names = ["golden-ls", "res-ex"];
    let path = bench.image("v38-res-512-1m-ex");
    assert_eq!(bench.owners(&path, ["", ""], 0), Err(-226));
    assert_eq!(bench.owners(&path, ["golden-ls", ""], 0), Err(-227));
    assert_eq!(bench.owners(&path, ["x", "res-ex"], 0), Err(-226));
    assert_eq!(bench.owners(Path::new("/nonexistent/lease"), names, 0), Err(-2));
    assert_eq!(read_resource_owners(&mut bench.io, &resource(names, &[], 0)).map_err(code).unwrap_err(), -34);
    let zeros = bench.file("zeros", &vec![0; 1 << 20]);
    for hint in [0, 0x110, 0x210] {
        assert_eq!(bench.owners(&zeros, names, hint), Err(-22));
    }
    assert_eq!(bench.owners(&zeros, names, 0x220), Err(-90));
    let cleared = bench.image("v38-res-512-1m-cleared");
    assert_eq!(bench.owners(&cleared, ["golden-ls", "res-clear"], 0), Err(NO_LEASE));
    let short = bench.file("short", &recorded("v38-res-512-1m-ex")[..2048]);
    assert_eq!(bench.owners(&short, names, 0), Err(-90));
}

#[test]
fn an_owner_that_is_marked_shared_too_is_listed_once() {
    let mut bench = Bench::new();
    let mut bytes = recorded("v38-res-512-1m-ex");
    bytes[1024 + 128] = 1;
    let path = bench.file("both", &bytes);
    assert_eq!(bench.owners(&path, ["golden-ls", "res-ex"], 0), Ok((1, 0x4, vec![(1, 1, 4559)])));
}

/// The original reads past its buffer and dies.
#[test]
fn more_hosts_than_the_area_holds_are_refused() {
    let mut bench = Bench::new();
    for num_hosts in [2001, 2047, 1 << 40, u64::MAX] {
        let path = bench.changed("v38-res-512-1m-sh2", 0, |leader| leader.num_hosts = num_hosts.into());
        assert_eq!(bench.owners(&path, ["golden-ls", "res-sh"], 0), Err(-228), "{num_hosts}");
        assert_eq!(bench.res(&path, ["", ""], 0), Err(-228));
    }
    // Fewer hosts: the sectors behind them are not looked at.
    let path = bench.changed("v38-res-512-1m-sh2", 0, |leader| leader.num_hosts = 1999.into());
    assert_eq!(bench.owners(&path, ["golden-ls", "res-sh"], 0).unwrap().2, [(1, 1, 0)]);
}

#[test]
fn lockspaces_are_written_as_the_original_writes_them() {
    let mut bench = Bench::new();
    for (image, flags) in
        [("v38-ls-512-1m-init", 0), ("v38-ls-512-1m-init", 0x3f0), ("v38-ls-4k-2m-init", 0x220)]
    {
        let path = bench.file("new", b"");
        write_lockspace(&mut bench.io, &lockspace("golden-ls", 1, &path, 0, flags), 0).unwrap();
        assert!(std::fs::read(&path).unwrap() == recorded(image), "{image} {flags:#x}");
    }
    let path = bench.path("new");
    write_lockspace(&mut bench.io, &lockspace("", 7, &path, 1 << 20, 0x110), 255).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!(RawLeader::from_sector(&bytes[1 << 20..]).io_timeout.get(), 255);
    assert!(bytes[..1 << 20] == recorded("v38-ls-4k-2m-init")[..1 << 20], "only its own area is written");
}

#[test]
fn lockspaces_that_cannot_be_written_leave_the_file_alone() {
    let mut bench = Bench::new();
    let before = recorded("v38-ls-512-1m-joined-1-2000");
    let path = bench.file("ls", &before);
    for (flags, io_timeout, offset, expected) in [
        (0x100, 0, 0, -1),
        (0x10, 0, 0, -1),
        (0x120, 0, 0, -1),
        (0x180, 0, 0, -1),
        (0, 256, 0, -22),
        (0, 70_000, 0, -22),
        (0, u32::MAX, 0, -22),
        (0, 0, 100, -22),
    ] {
        let request = lockspace("x", 1, &path, offset, flags);
        let result = write_lockspace(&mut bench.io, &request, io_timeout).map_err(code);
        assert_eq!(result, Err(expected), "{flags:#x} {io_timeout} {offset}");
        assert!(std::fs::read(&path).unwrap() == before);
    }
    for missing in ["/nonexistent/lease", "", "/", "/dev/null"] {
        let request = lockspace("x", 1, Path::new(missing), 0, 0x100);
        assert_eq!(write_lockspace(&mut bench.io, &request, 0).map_err(code), Err(-19), "{missing:?}");
    }
}

#[test]
fn resources_are_written_as_the_original_writes_them() {
    let mut bench = Bench::new();
    for (image, name, flags, sector) in [
        ("v38-res-512-1m-init", "res-init", 0, 512),
        ("v38-res-512-1m-init", "res-init", 0x110, 512),
        ("v38-res-4k-2m-init", "res-4k", 0x220, 4096),
    ] {
        let paths = [bench.file("one", b""), bench.file("two", b"")];
        let spec = resource(["golden-ls", name], &[&paths[0], &paths[1]], flags);
        write_resource(&mut bench.io, &spec, 0, WriteFlags::empty()).unwrap();
        let expected = without_request_padding(recorded(image), sector);
        for path in &paths {
            assert!(std::fs::read(path).unwrap() == expected, "{image}");
        }
    }
}

/// What is cut short leaves the old lease, or none, or the new one: no disk has the new one while another one still has the old.
#[test]
fn no_disk_gets_a_lease_before_the_old_one_is_gone_everywhere() {
    let mut bench = Bench::new();
    let old = recorded("v38-res-512-1m-init");
    let (one, two) = (bench.file("one", &old), bench.file("two", &old));
    let names = resource(["golden-ls", "res-init"], &[&one], 0);
    // No file has such a place: the first write to the second disk fails.
    let spec = ResourceSpec::new(*names.resource(), vec![disk(&one, 0), disk(&two, 1 << 62)]).unwrap();
    assert!(write_resource(&mut bench.io, &spec, 0, WriteFlags::empty()).is_err());
    let left = std::fs::read(&one).unwrap();
    assert!(left[..512] == [0; 512] && left[512..] == old[512..]);
}

#[test]
fn numbers_of_hosts_and_clearing() {
    let mut bench = Bench::new();
    let path = bench.file("new", b"");
    for (asked, flags, expected) in
        [(0, 0, 2000), (8, 0, 8), (2001, 0, 2000), (0x7fff_ffff, 0, 2000), (0, 0x210, 250), (300, 0x210, 250)]
    {
        let spec = resource(["l", "r"], &[&path], flags);
        write_resource(&mut bench.io, &spec, asked, WriteFlags::empty()).unwrap();
        let leader = RawLeader::from_sector(&std::fs::read(&path).unwrap());
        assert_eq!(leader.num_hosts.get(), expected, "{asked}");
    }
    write_resource(&mut bench.io, &resource(["l", "r"], &[&path], 0), 0, WriteFlags::CLEAR).unwrap();
    assert_ne!(RawLeader::from_sector(&std::fs::read(&path).unwrap()).write_timestamp.get(), 0);
    assert_eq!(bench.res(&path, ["", ""], 0), Err(NO_LEASE));
}

#[test]
fn resources_that_cannot_be_written_leave_all_disks_alone() {
    let mut bench = Bench::new();
    let (one, two) = (bench.file("one", b""), bench.file("two", b""));
    let missing = Path::new("/nonexistent/lease");
    for (paths, flags, num_hosts, expected) in [
        (&[][..], 0, 0, -34),
        (&[&*one, missing][..], 0, 0, -2),
        (&[missing, &*one][..], 0x100, 0, -2),
        (&[&*one, &*two][..], 0x100, 0, -1),
        (&[&*one, &*two][..], 0x180, 0, -1),
        (&[&*one, &*two][..], 0, u32::MAX, -22), // the original stores it
        (&[&*one, &*two][..], 0, 0x8000_0000, -22),
    ] {
        let spec = resource(["l", "r"], paths, flags);
        let result = write_resource(&mut bench.io, &spec, num_hosts, WriteFlags::empty()).map_err(code);
        assert_eq!(result, Err(expected), "{paths:?} {flags:#x} {num_hosts}");
        for path in [&one, &two] {
            assert_eq!(std::fs::metadata(path).unwrap().len(), 0);
        }
    }
}

#[test]
fn alignment() {
    let bench = Bench::new();
    let path = bench.file("new", b"");
    assert_eq!(align(&bench.io, &disk(&path, 0)).map_err(code), Ok(1 << 20));
    for missing in ["/nonexistent/lease", "", "/", "/dev/null", "/dev/zero"] {
        assert_eq!(align(&bench.io, &disk(Path::new(missing), 0)).map_err(code), Err(-19), "{missing:?}");
    }
}

/// The original reads outside its buffer, and its daemon dies.
#[test]
fn owners_of_a_lease_with_an_impossible_sector_size() {
    let mut bench = Bench::new();
    for sector_size in [0, 1, 1024, u32::MAX] {
        let path = bench.changed("v38-res-512-1m-ex", 0, |leader| leader.sector_size = sector_size.into());
        for hint in [0, 0x110, 0x220] {
            let result = bench.owners(&path, ["golden-ls", "res-ex"], hint);
            assert!(result.as_ref().is_err_and(|code| *code < 0), "{sector_size} {hint:#x}: {result:?}");
        }
    }
}
