//! A format that timed out is not over: its write lands when the storage comes back.

use crate::support::served::{disk, lease_on, served, served_over};
use crate::support::{Daemon, Holder, Place, in_time, within};
use sanlock_client::ClientError;
use sanlock_conformance::frozen::FreezableDir;
use sanlock_served::Trouble;
use sanlock_wire::flags::{
    AcquireFlags, AddFlags, ReleaseFlags, RemFlags, RequestFlags, RindexCmdFlags, WriteFlags,
};
use sanlock_wire::types::{Disk, Lockspace, Rindex};
use sanlock_wire::{Name, code};
use std::fs::{self, File};
use std::path::Path;
use std::thread;
use std::time::Duration;

#[test]
fn nothing_is_formatted_over_a_write_that_may_still_land() {
    let Some(mut storage) = FreezableDir::new() else { return };
    let place = Place::new();
    let daemon = Daemon::start(&place.run_dir("a"), "host1");
    let path = storage.path().join("leases");
    File::create(&path).unwrap().set_len(4 << 20).unwrap();
    let lockspace =
        |path: &[u8], offset| Lockspace::new(Name::truncated("LS"), 0, Disk::new(path, offset).unwrap());
    let frozen = path.as_os_str().as_encoded_bytes();
    let format = |offset| {
        let result = daemon.client().write_lockspace(&lockspace(frozen, offset), 0, 1);
        result.map_or_else(|error| error.result_code(), |()| 0)
    };
    assert_eq!(format(0), 0);
    storage.freeze();
    assert_eq!(format(0), code::SANLK_AIO_TIMEOUT);
    storage.thaw();
    // From now on it lands, soon. Until it has, the disk is not formatted.
    assert!(within(Duration::from_secs(60), || match format(1 << 20) {
        0 => true,
        refused => {
            assert_eq!(refused, code::EAGAIN);
            false
        }
    }));
    storage.freeze();
    assert_eq!(format(0), code::SANLK_AIO_TIMEOUT);
    assert_eq!(format(1 << 20), code::EAGAIN, "at once, although nothing else is the matter");
    // Another disk has nothing to do with it.
    place.format(&daemon);
    storage.thaw();
}

/// The next one would know nothing of it, and take what the format then lands on.
#[test]
fn no_other_daemon_starts_while_a_format_of_the_one_before_may_still_land() {
    let place = Place::new();
    let run_dir = place.run_dir("a");
    let mut daemon = Daemon::start(&run_dir, "host1");
    // Thawed before the daemon is waited for.
    let Some(mut storage) = FreezableDir::new() else { return };
    let path = storage.path().join("leases");
    File::create(&path).unwrap().set_len(1 << 20).unwrap();
    let lockspace = Lockspace::new(Name::truncated("LS"), 0, disk(&path, 0));
    let client = daemon.client();
    let format = || client.write_lockspace(&lockspace, 0, 1).map_or_else(|error| error.result_code(), |()| 0);
    assert_eq!(format(), 0);
    storage.freeze();
    assert_eq!(format(), code::SANLK_AIO_TIMEOUT);
    // The command has ended, and nothing is waited for.
    client.shutdown_wait(false).unwrap();
    for _ in 0..2 {
        let refused = Daemon::refused(&run_dir, "host1");
        assert!(refused.contains("lockfile setlk error"), "{refused}");
    }
    storage.thaw();
    assert_eq!(daemon.ended(Duration::from_secs(60)), Some(0));
    assert!(
        daemon.log().contains("a write has not ended, or ended in doubt, and may still land"),
        "{}",
        daemon.log()
    );

    // Where nothing is left the next one need not wait for the end of the process, though a lease was held to the end.
    let daemon = Daemon::start(&run_dir, "host1");
    place.format(&daemon);
    place.join(&daemon, 1);
    let mut holder = Holder::start(&daemon, &place.leases());
    assert_eq!(holder.says(), "held");
    daemon.client().shutdown_wait(true).unwrap();
    let _next = Daemon::start(&run_dir, "host1");
}

/// It is not waited for: nobody can say whether there is anything to wait for. But it is told.
#[test]
fn a_daemon_that_ends_says_which_format_may_be_carried_out_although_it_failed() {
    const LATER: Duration = Duration::from_millis(100);
    let place = Place::new();
    let mut daemon = Daemon::start(&place.run_dir("a"), "host1");
    let Some(served) = served(&place) else { return };
    let lockspace = Lockspace::new(Name::truncated("LS"), 0, disk(served.path(), 0));
    served.deny(0, LATER);
    let client = daemon.client();
    assert_eq!(client.write_lockspace(&lockspace, 0, 1).unwrap_err().result_code(), -5);
    assert_eq!(client.write_lockspace(&lockspace, 0, 1).unwrap_err().result_code(), code::EAGAIN);
    client.shutdown_wait(false).unwrap();
    assert_eq!(daemon.ended(Duration::from_secs(60)), Some(0));
    let told = format!("a format of {}, or another command's write there, failed", served.path().display());
    assert!(daemon.log().contains(&told), "{}", daemon.log());
}

/// The kernel ends a process that writes beyond the limit, unless it asks to be told instead.
#[test]
fn a_limit_of_file_sizes_ends_no_daemon() {
    let place = Place::new();
    let daemon = Daemon::start_with_limit("ulimit -f 4096", &place.run_dir("a"), "host1");
    let path = place.dir.path().join("beyond");
    File::create(&path).unwrap().set_len(8 << 20).unwrap();
    let lockspace = Lockspace::new(Name::truncated("LS"), 0, disk(&path, 4 << 20));
    let client = daemon.client();
    assert_eq!(client.write_lockspace(&lockspace, 0, 1).unwrap_err().result_code(), -libc::EFBIG);
    client.version().unwrap();
}

/// Whoever took it would lose it to the format when that lands, and others would have it beside them.
#[test]
fn nothing_is_taken_where_a_format_may_still_land() {
    let Some(mut storage) = FreezableDir::new() else { return };
    let place = Place::new();
    let daemon = Daemon::start(&place.run_dir("a"), "host1");
    place.format(&daemon);
    place.join(&daemon, 1);
    let paths = ["lease", "lockspace"].map(|name| storage.path().join(name));
    paths.iter().for_each(|path| File::create(path).unwrap().set_len(4 << 20).unwrap());
    let lease = lease_on(&place, &paths[0]);
    let lockspace = |host_id| Lockspace::new(Name::truncated("OTHER"), host_id, disk(&paths[1], 0));
    let client = daemon.client();
    let mut holder = client.register().unwrap();
    let code = |result: Result<(), ClientError>| result.map_or_else(|error| error.result_code(), |()| 0);
    let formats = || {
        let lockspace = client.write_lockspace(&lockspace(0), 0, 1);
        [code(lockspace), code(client.write_resource(&lease, 0, 0, WriteFlags::empty()))]
    };
    let mut take = || {
        let joined = client.add_lockspace(&lockspace(1), AddFlags::empty());
        [code(joined), code(holder.acquire(AcquireFlags::empty(), std::slice::from_ref(&lease), None))]
    };
    assert_eq!(formats(), [0, 0]);
    storage.freeze();
    assert_eq!(formats(), [code::SANLK_AIO_TIMEOUT; 2]);
    assert_eq!(take(), [code::EAGAIN; 2], "at once");
    storage.thaw();
    // Each of them was cut short and left nothing that could be taken.
    assert!(within(Duration::from_secs(60), || {
        let taken = take();
        assert!(!taken.contains(&0), "DOUBLE OWNER: taken where a format may still land: {taken:?}");
        assert!(
            taken.iter().all(|code| [code::EAGAIN, code::SANLK_LEADER_MAGIC].contains(code)),
            "{taken:?}"
        );
        taken == [code::SANLK_LEADER_MAGIC; 2]
    }));
    assert_eq!(formats(), [0, 0]);
    assert_eq!(take(), [0, 0]);
    // And the other way round.
    let refused = formats();
    assert!(!refused.contains(&0), "DOUBLE OWNER: formatted while it is held: {refused:?}");
    assert_eq!(refused, [-16; 2]);
    holder.release(ReleaseFlags::ALL, &[]).unwrap();
}

/// What fails may be carried out all the same.
#[test]
fn nothing_is_formatted_over_a_write_that_is_in_doubt() {
    let place = Place::new();
    let daemon = Daemon::start(&place.run_dir("a"), "host1");
    let behind = place.dir.path().join("behind");
    File::create(&behind).unwrap().set_len(4 << 20).unwrap();
    let Some(served) = served_over(&place, &behind, Trouble::default()) else { return };
    let format = |offset| {
        let lockspace = Lockspace::new(Name::truncated("LS"), 0, disk(served.path(), offset));
        let result = daemon.client().write_lockspace(&lockspace, 0, 1);
        result.map_or_else(|error| error.result_code(), |()| 0)
    };
    assert_eq!(format(0), 0);
    served.deny(0, Duration::from_secs(2));
    assert_eq!(format(0), -5);
    assert!(within(Duration::from_secs(60), || {
        assert_eq!(format(1 << 20), code::EAGAIN);
        served.carried_out() > 0
    }));
    let log = String::from_utf8(daemon.client().log_dump().unwrap()).unwrap();
    let told = format!(
        "an earlier format of {}, or a request for a lease there, failed with an error after which",
        served.path().display()
    );
    assert!(log.contains(&told), "{log}");
    // Another disk has nothing to do with it.
    place.format(&daemon);
}

/// The lease would be free for others beside its holder, the host ids beside their hosts.
#[test]
fn what_the_daemon_uses_is_not_formatted() {
    let place = Place::new();
    let daemon = Daemon::start(&place.run_dir("a"), "host1");
    place.format(&daemon);
    place.join(&daemon, 1);
    let client = daemon.client();
    let mut holder = client.register().unwrap();
    in_time(|| holder.acquire(AcquireFlags::empty(), &[place.resource()], None)).unwrap();
    let before = fs::read(place.leases()).unwrap();
    let format = || client.write_resource(&place.resource(), 0, 0, WriteFlags::empty());
    assert_eq!(format().unwrap_err().result_code(), -16);
    let joined = client.write_lockspace(&place.lockspace(0), 0, 1);
    assert_eq!(joined.unwrap_err().result_code(), -16);
    // Nor is it made an index.
    let index = Rindex::new(Name::truncated("LS"), place.lockspace(0).host_id_disk);
    let indexed = client.format_rindex(&index, RindexCmdFlags::empty());
    assert_eq!(indexed.unwrap_err().result_code(), -16);
    assert!(fs::read(place.leases()).unwrap()[1 << 20..] == before[1 << 20..], "nothing was written");
    let log = String::from_utf8(client.log_dump().unwrap()).unwrap();
    assert!(log.contains("resource R at") && log.contains("lockspace LS at"), "{log}");
    holder.release(ReleaseFlags::ALL, &[]).unwrap();
    in_time(format).unwrap();
    client.rem_lockspace(&place.lockspace(1), RemFlags::empty()).unwrap();
    in_time(|| client.write_lockspace(&place.lockspace(0), 0, 1)).unwrap();
}

/// It would be a request for the new lease, whose owner would be killed for a version that it has never had.
#[test]
fn nothing_is_formatted_over_a_request_that_is_in_doubt() {
    let place = Place::new();
    let daemon = Daemon::start(&place.run_dir("a"), "host1");
    place.format(&daemon);
    place.join(&daemon, 1);
    let behind = place.dir.path().join("behind");
    File::create(&behind).unwrap().set_len(4 << 20).unwrap();
    let Some(served) = served_over(&place, &behind, Trouble::default()) else { return };
    let lease = lease_on(&place, served.path());
    let client = daemon.client();
    let format = || {
        let result = client.write_resource(&lease, 0, 0, WriteFlags::empty());
        result.map_or_else(|error| error.result_code(), |()| 0)
    };
    assert_eq!(format(), 0);
    let mut holder = client.register().unwrap();
    in_time(|| holder.acquire(AcquireFlags::empty(), std::slice::from_ref(&lease), None)).unwrap();
    // The sector behind the leader's.
    served.deny(lease.disks()[0].offset.get() + 512, Duration::from_secs(2));
    let asked = client.request(&lease, RequestFlags::NEXT_LVER, FORCE);
    assert_eq!(asked.unwrap_err().result_code(), -5);
    // What is held is not formatted in any case.
    holder.release(ReleaseFlags::ALL, &[]).unwrap();
    assert!(within(Duration::from_secs(60), || {
        assert_eq!(format(), code::EAGAIN);
        served.carried_out() > 0
    }));
}

/// The holder is to be killed (disk-format.md 7.3).
const FORCE: u32 = 1;

/// Formats that hang at a time: more than were once allowed in all.
const HUNG: u64 = 70;

#[test]
fn formats_that_hang_on_one_file_system_refuse_none_elsewhere() {
    let Some(mut storage) = FreezableDir::new() else { return };
    let place = Place::new();
    fs::write(place.run_dir("a").with_extension("conf"), format!("max_worker_threads = {HUNG}\n")).unwrap();
    let daemon = Daemon::start(&place.run_dir("a"), "host1");
    let format = |path: &Path| {
        let disk = Disk::new(path.as_os_str().as_encoded_bytes(), 0).unwrap();
        let result = daemon.client().write_lockspace(&Lockspace::new(Name::truncated("LS"), 0, disk), 0, 1);
        result.map_or_else(|error| error.result_code(), |()| 0)
    };
    let files: Vec<_> = (0..HUNG).map(|n| storage.path().join(format!("leases{n}"))).collect();
    files.iter().for_each(|path| File::create(path).unwrap().set_len(1 << 20).unwrap());
    storage.freeze();
    thread::scope(|scope| {
        let formats: Vec<_> = files.iter().map(|path| scope.spawn(|| format(path))).collect();
        for format in formats {
            assert_eq!(format.join().unwrap(), code::SANLK_AIO_TIMEOUT);
        }
    });
    assert_eq!(format(&files[0]), code::EAGAIN, "that one waits for its own");
    place.format(&daemon);
    storage.thaw();
    assert!(within(Duration::from_secs(60), || files.iter().all(|path| format(path) == 0)));
}
