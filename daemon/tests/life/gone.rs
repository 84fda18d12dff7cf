//! A lease whose file is deleted while it is held, as libvirt's `virt-sanlock-cleanup` does: its daemon can give nothing back.

use super::support::{Daemon, Holder, Place, RESOURCE_OFFSET, within};
use sanlock_wire::Name;
use sanlock_wire::flags::{RemFlags, WriteFlags};
use sanlock_wire::types::{Disk, Resource, ResourceSpec};
use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

/// For eight io timeouts of a second, on a machine that does other things too.
const LIMIT: Duration = Duration::from_secs(60);

/// Makes the file with the lease in it; refused while an attempt to give an earlier one up is under way.
fn make(daemon: &Daemon, path: &Path) {
    File::create(path).unwrap().set_len(RESOURCE_OFFSET + (1 << 20)).unwrap();
    let disk = Disk::new(path.as_os_str().as_encoded_bytes(), RESOURCE_OFFSET).unwrap();
    let resource = Resource::new(Name::truncated("LS"), Name::truncated("R"));
    let spec = ResourceSpec::new(resource, vec![disk]).unwrap();
    let made = || daemon.client().write_resource(&spec, 0, 0, WriteFlags::empty()).is_ok();
    assert!(within(LIMIT, made), "it is formatted");
}

#[test]
fn it_keeps_nobody_from_the_one_that_is_made_anew_and_is_given_up_in_the_end() {
    let place = Place::new();
    let daemon = Daemon::start(&place.run_dir("a"), "host1");
    place.format(&daemon);
    place.join(&daemon, 1);
    let path = place.leases().with_file_name("single");
    make(&daemon, &path);
    let mut holder = Holder::start(&daemon, &path);
    assert_eq!(holder.says(), "held");
    fs::remove_file(&path).unwrap();
    drop(holder);

    // Refused only while it is being tried.
    make(&daemon, &path);
    let mut holder = None;
    let had = within(Duration::from_secs(5), || {
        let mut next = Holder::start(&daemon, &path);
        let held = next.says() == "held";
        holder = Some(next);
        held
    });
    assert!(had, "the new one is free");

    fs::remove_file(&path).unwrap();
    drop(holder);
    let unused = || daemon.client().rem_lockspace(&place.lockspace(1), RemFlags::UNUSED);
    assert!(unused().is_err(), "it is still tried");
    assert!(within(LIMIT, || unused().is_ok()), "not for ever");
}
