//! Stock libvirt with its sanlock plugin: two hosts, and domains that must not run on both.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use sanlock_conformance::libvirt::{self, DISKS_LOCKSPACE, Domain, Leases, LibvirtHost};
use sanlock_conformance::storage::{damage_host_id_until, scratch_dir};
use sanlock_conformance::{Program, Storage, bounded};

/// What libvirt says when the lock manager refuses with "held by another host".
const HELD_ELSEWHERE: &str = "Failed to acquire lock: Lease is held by another host";

/// A failed lockspace stops its domains at once; a busy machine may take longer.
const STOP_LIMIT: Duration = Duration::from_secs(60);

fn under_test() -> Option<Program> {
    let program = Program::under_test()?;
    libvirt::available().then_some(program)
}

fn two_hosts(program: Program, leases: Leases<'_>) -> [LibvirtHost; 2] {
    let first = LibvirtHost::start(program, 1, leases);
    [first, LibvirtHost::start(program, 2, leases)]
}

#[track_caller]
fn assert_refused(host: &LibvirtHost, domain: &Domain) {
    let refused = host.create(domain);
    // These words are never forgiven (tests/forgivable).
    assert_ne!(refused.code, 0, "DOUBLE OWNER: {refused}");
    assert_eq!(refused.code, 1, "{refused}");
    assert!(refused.stderr.contains(HELD_ELSEWHERE), "{refused}");
}

#[test]
fn a_domain_runs_on_one_host_at_a_time() {
    let Some(program) = under_test() else { return };
    let dir = scratch_dir("leases");
    let [mut first, second] = two_hosts(program, Leases::OfDisks(dir.path()));
    let domain = Domain::new("vm1", 2);

    let _ = first.create(&domain).success();
    assert_eq!(first.clients(), ["vm1"], "the domain is registered by its name");
    let held = first.leases();
    assert_eq!(held.len(), 2, "one lease for each disk: {held:?}");
    assert!(held.iter().all(|lease| lease.starts_with(&format!("{DISKS_LOCKSPACE}:"))), "{held:?}");
    assert_refused(&second, &domain);
    assert_eq!(second.state("vm1"), "", "it did not stay there");
    assert_eq!(second.leases(), [""; 0]);

    // The emulator has the registered connection, so the leases do not depend on libvirtd.
    first.restart_libvirtd();
    assert_eq!(first.state("vm1"), "running");
    assert_eq!(first.leases(), held);
    assert_refused(&second, &domain);

    let _ = first.virsh(&["destroy", "vm1"]).success();
    bounded::wait_until("the leases to be released", STOP_LIMIT, || first.leases().is_empty());
    let _ = second.create(&domain).success();
    assert_refused(&first, &domain);
}

#[test]
fn a_paused_domain_lets_another_host_go_on() {
    let Some(program) = under_test() else { return };
    let dir = scratch_dir("leases");
    let [first, second] = two_hosts(program, Leases::OfDisks(dir.path()));
    let domain = Domain::new("vm1", 1);

    let _ = first.create(&domain).success();
    let _ = first.virsh(&["suspend", "vm1"]).success();
    assert_eq!(first.leases(), [""; 0], "a paused domain gives its leases back");
    let _ = second.create(&domain).success();

    let refused = first.virsh(&["resume", "vm1"]);
    assert_ne!(refused.code, 0, "DOUBLE OWNER: {refused}");
    assert_eq!(refused.code, 1, "{refused}");
    assert!(refused.stderr.contains(HELD_ELSEWHERE), "{refused}");
    assert_eq!(first.state("vm1"), "paused");

    let _ = second.virsh(&["destroy", "vm1"]).success();
    bounded::wait_until("the first host to go on", STOP_LIMIT, || first.virsh(&["resume", "vm1"]).code == 0);
    assert_eq!(first.leases().len(), 1);

    // A disk that is plugged in or out while the domain runs brings or takes its lease.
    let more = first.add_image("more.img");
    let _ = first
        .virsh(&["attach-disk", "vm1", &more, "sda", "--driver", "qemu", "--subdriver", "raw"])
        .success();
    assert_eq!(first.leases().len(), 2);
    let _ = first.virsh(&["detach-disk", "vm1", "sda"]).success();
    bounded::wait_until("the lease of the detached disk to go", STOP_LIMIT, || first.leases().len() == 1);
}

#[test]
fn a_domain_that_moves_takes_its_leases_along() {
    let Some(program) = under_test() else { return };
    let dir = scratch_dir("leases");
    let [first, second] = two_hosts(program, Leases::OfDisks(dir.path()));
    let domain = Domain::new("vm1", 1);
    let _ = first.create(&domain).success();
    let held = first.leases();

    second.make_images(&domain);
    let _ = first.migrate("vm1", &second, &dir.path().join("meeting")).success();
    assert_eq!((first.state("vm1").as_str(), second.state("vm1").as_str()), ("", "running"));
    assert_eq!(first.leases(), [""; 0]);
    let moved = second.leases();
    assert_eq!(moved.len(), 1, "{moved:?}");
    // The lease is the same; its version has grown.
    assert_eq!(version(&moved[0]), (version(&held[0]).0, version(&held[0]).1 + 1), "{held:?}, {moved:?}");
    assert_refused(&first, &domain);
}

#[test]
fn a_domain_moves_between_hosts_of_both_programs() {
    let Some(program) = under_test() else { return };
    if program == Program::Reference || !Program::both_available() {
        return; // Once is enough.
    }
    let dir = scratch_dir("leases");
    let leases = Leases::OfDisks(dir.path());
    let hosts =
        [LibvirtHost::start(Program::Reference, 1, leases), LibvirtHost::start(Program::Ours, 2, leases)];
    let domain = Domain::new("vm1", 1);
    hosts.iter().for_each(|host| host.make_images(&domain));

    let _ = hosts[0].create(&domain).success();
    for (from, to) in [(&hosts[0], &hosts[1]), (&hosts[1], &hosts[0])] {
        assert_refused(to, &domain);
        let _ = from.migrate("vm1", to, &dir.path().join("meeting")).success();
        assert_eq!((from.leases().len(), to.leases().len()), (0, 1));
    }
    assert_refused(&hosts[1], &domain);
}

/// A line of `leases`, split into the lease and its version.
fn version(lease: &str) -> (&str, u64) {
    let (lease, version) = lease.rsplit_once(':').unwrap_or_else(|| panic!("no version: {lease}"));
    (lease, version.parse().unwrap_or_else(|error| panic!("{version:?}: {error}")))
}

#[test]
fn disks_marked_as_shareable_are_used_by_both_hosts_but_not_exclusively() {
    let Some(program) = under_test() else { return };
    let dir = scratch_dir("leases");
    let [first, second] = two_hosts(program, Leases::OfDisks(dir.path()));
    let sharing = Domain::new("vm1", 1).sharing();
    let _ = first.create(&sharing).success();
    let _ = second.create(&sharing).success();
    assert_eq!((first.leases().len(), second.leases().len()), (1, 1));

    let _ = second.virsh(&["destroy", "vm1"]).success();
    let refused = second.create(&Domain::new("vm1", 1));
    assert_ne!(refused.code, 0, "DOUBLE OWNER: exclusive use beside a shared one: {refused}");
    assert_eq!(refused.code, 1, "{refused}");
    assert!(refused.stderr.contains("Failed to acquire lock"), "{refused}");
}

/// It deletes their files while it holds them, so that nothing can be given back.
#[test]
fn leases_of_disks_are_cleaned_up_and_made_anew() {
    let Some(program) = under_test() else { return };
    let dir = scratch_dir("leases");
    let (leases, tools) = (dir.path().join("leases"), dir.path().join("tools"));
    fs::create_dir_all(&leases).unwrap();
    fs::create_dir_all(&tools).unwrap();
    let setting = format!("#!/bin/sh\necho \"$2 = {}\"\n", leases.display());
    sanlock_executable::script(&tools.join("augtool"), &setting, 0o755);
    symlink(program.path(), tools.join("sanlock")).unwrap();
    let [first, second] = two_hosts(program, Leases::OfDisks(&leases));
    let [running, ended] = ["running", "ended"].map(|name| Domain::new(name, 1));
    let files = || fs::read_dir(&leases).unwrap().count();

    let _ = first.create(&running).success();
    let _ = first.create(&ended).success();
    let _ = first.virsh(&["destroy", "ended"]).success();
    bounded::wait_until("the lease to be released", STOP_LIMIT, || first.leases().len() == 1);
    assert_eq!(files(), 3, "the lockspace, and a lease for each disk");

    let cleaned = second.clean_up(&tools).success();
    assert_eq!(cleaned.stdout.matches("PASS").count(), 1, "{cleaned}");
    assert_eq!(cleaned.stdout.matches("FAIL").count(), 1, "that of the domain that runs: {cleaned}");
    assert_eq!(files(), 2);
    let _ = second.create(&ended).success();
    assert_refused(&second, &running);
    assert_refused(&first, &ended);
    assert_eq!((files(), second.leases().len()), (3, 1));
}

#[test]
fn a_named_lease_decides_who_may_run() {
    let Some(program) = under_test() else { return };
    let hosts = two_hosts(program, Leases::Named);
    let storage = Storage::file();
    let _ = hosts[0].sanlock(&["client", "init", "-s", &storage.lockspace_arg(0), "-o", "1"]);
    let _ = hosts[0].sanlock(&["client", "init", "-r", &storage.resource_arg(1)]);
    for (host, number) in hosts.iter().zip(1..) {
        let _ = host.sanlock(&["client", "add_lockspace", "-s", &storage.lockspace_arg(number), "-o", "1"]);
    }
    let domain = Domain::new("vm1", 1).with_lease("LS", "R1", Path::new(storage.path()), storage.offset(1));
    // What another domain uses the lease for is another matter.
    let rival = Domain::new("vm2", 1).with_lease("LS", "R1", Path::new(storage.path()), storage.offset(1));
    let without = Domain::new("vm3", 1);

    let _ = hosts[0].create(&domain).success();
    assert_eq!(hosts[0].leases(), [format!("{}:1", storage.resource_arg(1))]);
    assert_refused(&hosts[1], &rival);
    let refused = hosts[0].create(&rival);
    assert_ne!(refused.code, 0, "DOUBLE OWNER: {refused}");
    assert_eq!(refused.code, 1, "{refused}");
    assert!(refused.stderr.contains("Failed to acquire lock"), "{refused}");
    let refused = hosts[1].create(&without);
    assert_eq!(refused.code, 1, "writable disks without a lease: {refused}");

    let _ = hosts[0].virsh(&["destroy", "vm1"]).success();
    bounded::wait_until("the second host to be granted the lease", STOP_LIMIT, || {
        hosts[1].create(&rival).code == 0
    });
    assert_eq!(hosts[1].leases(), [format!("{}:2", storage.resource_arg(1))]);
}

#[test]
fn domains_are_stopped_when_the_lockspace_fails() {
    let Some(program) = under_test() else { return };
    let dir = scratch_dir("leases");
    let host = LibvirtHost::start(program, 1, Leases::OfDisks(dir.path()));
    // By default the lock manager ends the emulator; otherwise it asks libvirt's own helper to do it.
    let _ = host.create(&Domain::new("killed", 1)).success();
    let _ = host.create(&Domain::new("poweredoff", 1).on_lockfailure("poweroff")).success();
    let _ = host.create(&Domain::new("paused", 1).on_lockfailure("pause")).success();
    assert_eq!(host.leases().len(), 3);

    let lockspace = dir.path().join(DISKS_LOCKSPACE);
    damage_host_id_until(&lockspace, 1, "a domain to be killed", STOP_LIMIT, || {
        host.state("killed").is_empty()
    });
    bounded::wait_until("the domains to be stopped", STOP_LIMIT, || {
        (host.state("killed"), host.state("poweredoff"), host.state("paused"))
            == (String::new(), String::new(), "paused".to_owned())
    });
    bounded::wait_until("the lockspace to be gone", STOP_LIMIT, || {
        host.leases().is_empty() && !host.sanlock(&["client", "status"]).contains(DISKS_LOCKSPACE)
    });
    assert_eq!(host.state("paused"), "paused", "a paused domain has no leases, so it is left alone");
    let refused = host.virsh(&["resume", "paused"]);
    assert_eq!(refused.code, 1, "nothing is granted without the lockspace: {refused}");
}
