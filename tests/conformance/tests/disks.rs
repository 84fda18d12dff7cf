//! A lease on several disks: the majority rules, whichever disk is lost, and whatever one brings back
//! (lease-algorithms.md 4.8, disk-format.md 7.11).

use std::fs;

use sanlock_conformance::dead_owner::registered;
use sanlock_conformance::storage::LOCKSPACE;
use sanlock_conformance::{Connection, Program, Resource, Scene, Storage, Table};

const DISKS: usize = 3;

/// A resource on three files of its own.
struct Lease {
    paths: Vec<String>,
    resource: Resource,
}

impl Lease {
    fn new(scene: &Scene, name: &str) -> Self {
        let paths: Vec<String> =
            (0..DISKS).map(|n| scene.storage().extra_file(&format!("{name}-{n}"), 1)).collect();
        let mut resource = Resource::new(LOCKSPACE, name, &paths[0], 0);
        resource.disks = paths.iter().map(|path| (path.clone().into_bytes(), 0)).collect();
        resource.num_disks = u32::try_from(DISKS).unwrap_or(0);
        let text: Vec<String> = paths.iter().map(|path| format!("{path}:0")).collect();
        let arg = format!("{LOCKSPACE}:{name}:{}", text.join(":"));
        scene.host(0).client(&["client", "init", "-r", &arg]).success();
        Self { paths, resource }
    }

    fn lose(&self, n: usize) {
        rename(&self.paths[n], &format!("{}.lost", self.paths[n]));
    }

    fn bring_back(&self, n: usize) {
        rename(&format!("{}.lost", self.paths[n]), &self.paths[n]);
    }

    fn contents(&self, n: usize) -> Vec<u8> {
        fs::read(&self.paths[n]).unwrap_or_else(|error| panic!("{}: {error}", self.paths[n]))
    }

    fn overwrite(&self, n: usize, contents: &[u8]) {
        fs::write(&self.paths[n], contents).unwrap_or_else(|error| panic!("{}: {error}", self.paths[n]));
    }

    /// Version and whether it is owned, of each disk.
    fn leaders(&self) -> Vec<(u8, bool)> {
        (0..DISKS)
            .map(|n| {
                let bytes = self.contents(n);
                (bytes[48], bytes[152..160].iter().any(|byte| *byte != 0))
            })
            .collect()
    }
}

fn rename(from: &str, to: &str) {
    fs::rename(from, to).unwrap_or_else(|error| panic!("{from}: {error}"));
}

fn two_hosts(program: Program) -> Scene {
    let scene = Scene::joined(Storage::file(), &[program, program], 0);
    scene.wait_until_all_see_all();
    scene
}

fn clients(scene: &Scene) -> (Connection, Connection) {
    (registered(scene.host(0)), registered(scene.host(1)))
}

#[test]
fn with_every_disk_there_it_is_as_with_one() {
    let Some(program) = Program::under_test() else { return };
    let scene = two_hosts(program);
    let lease = Lease::new(&scene, "R");
    let (mut first, mut second) = clients(&scene);
    let mut table = Table::default();
    table.expect("acquired", first.acquire_one(&lease.resource), 0);
    table.expect("on every disk", lease.leaders(), vec![(1, true); DISKS]);
    table.expect("refused", second.acquire_one(&lease.resource), -243);
    table.expect("released", first.release_one(&lease.resource), 0);
    table.expect("on every disk", lease.leaders(), vec![(1, false); DISKS]);
    table.expect("acquired by the other", second.acquire_one(&lease.resource), 0);
}

/// The original goes by the result of the last disk.
#[test]
fn which_disk_is_missing_is_a_difference() {
    let Some(program) = Program::under_test() else { return };
    let scene = two_hosts(program);
    let mut table = Table::default();
    for missing in 0..DISKS {
        let lease = Lease::new(&scene, &format!("R{missing}"));
        lease.lose(missing);
        let (mut first, mut second) = clients(&scene);
        let expected = if program == Program::Reference && missing == DISKS - 1 { -9 } else { 0 };
        table.expect(&format!("disk {missing} missing"), first.acquire_one(&lease.resource), expected);
        if program == Program::Ours {
            table.expect("the other is refused", second.acquire_one(&lease.resource), -243);
            table.expect("released", first.release_one(&lease.resource), 0);
            table.expect("acquired by the other", second.acquire_one(&lease.resource), 0);
        }
    }
    let lease = Lease::new(&scene, "TWO");
    lease.lose(0);
    lease.lose(2);
    let (mut first, _) = clients(&scene);
    table.expect("two missing", first.acquire_one(&lease.resource), -2);
}

/// Reading a lease and asking for it need a majority of its disks, like taking it. The original needs the first one, too.
#[test]
fn a_lease_is_read_and_asked_for_while_a_majority_of_its_disks_is_there() {
    let Some(program) = Program::under_test() else { return };
    let scene = two_hosts(program);
    let mut table = Table::default();
    for missing in 0..DISKS {
        let lease = Lease::new(&scene, &format!("R{missing}"));
        let (mut owner, _) = clients(&scene);
        assert_eq!(owner.acquire_one(&lease.resource), 0);
        lease.lose(missing);
        let expected = if program == Program::Reference && missing == 0 { -9 } else { 0 };
        let case = |what: &str| format!("{what}, disk {missing} missing");
        let mut other = scene.host(1).connect();
        table.expect(&case("read"), other.read_resource(&lease.resource).0, expected);
        let (owners, _, hosts) = scene.host(1).connect().read_resource_owners(&lease.resource);
        table.expect(&case("owners"), (owners, hosts.len()), (expected, usize::from(expected == 0)));
        let text: Vec<String> = lease.paths.iter().map(|path| format!("{path}:0")).collect();
        let arg = format!("{LOCKSPACE}:R{missing}:{}:5", text.join(":"));
        let asked = scene.host(1).client(&["client", "request", "-r", &arg, "-f", "2"]);
        table.expect(&case("request"), asked.result(), Some(i64::from(expected)));
        // Host 1, which owns the lease, is told and finds what is asked for on the first disk that is there.
        let there = if missing == 0 { 1 } else { 0 };
        let record = &lease.contents(there)[512..512 + 28];
        let asked_for = (expected == 0).then_some(5);
        table.expect(&case("record"), (expected == 0).then(|| record[8]), asked_for);
    }
    let lease = Lease::new(&scene, "TWO");
    lease.lose(0);
    lease.lose(2);
    table.expect("two missing", scene.host(1).connect().read_resource(&lease.resource).0, -2);
}

#[test]
fn a_disk_lost_while_the_lease_is_held_comes_back_with_old_content() {
    let Some(program) = Program::ours_under_test("goes by the last disk") else { return };
    let scene = two_hosts(program);
    let mut table = Table::default();
    for lost in 0..DISKS {
        let lease = Lease::new(&scene, &format!("R{lost}"));
        let (mut first, mut second) = clients(&scene);
        table.expect("acquired", first.acquire_one(&lease.resource), 0);
        lease.lose(lost);
        table.expect("released on the others", first.release_one(&lease.resource), 0);
        lease.bring_back(lost);
        let old = lease.leaders()[lost];
        table.expect("the one that comes back says it is owned", old, (1, true));
        table.expect("two say it is free", second.acquire_one(&lease.resource), 0);
        table.expect("every disk says who owns it now", lease.leaders(), vec![(2, true); DISKS]);
        table.expect("refused", first.acquire_one(&lease.resource), -243);
    }
}

#[test]
fn a_disk_that_was_replaced_by_an_older_copy_does_not_free_the_lease() {
    let Some(program) = Program::ours_under_test("goes by the last disk") else { return };
    let scene = two_hosts(program);
    let mut table = Table::default();
    for replaced in 0..DISKS {
        let lease = Lease::new(&scene, &format!("R{replaced}"));
        let (mut first, mut second) = clients(&scene);
        table.expect("acquired once", first.acquire_one(&lease.resource), 0);
        table.expect("and released", first.release_one(&lease.resource), 0);
        let old = lease.contents(replaced);
        table.expect("acquired again", first.acquire_one(&lease.resource), 0);
        lease.overwrite(replaced, &old);
        table.expect("one disk says it is free", lease.leaders()[replaced], (1, false));
        table.expect("the others do not", second.acquire_one(&lease.resource), -243);
        table.expect("released", first.release_one(&lease.resource), 0);
        table.expect("acquired by the other", second.acquire_one(&lease.resource), 0);
        table.expect("no version is used twice", lease.leaders(), vec![(3, true); DISKS]);
    }
}

#[test]
fn shared_holders_on_several_disks() {
    let Some(program) = Program::ours_under_test("stops at the first disk that fails") else { return };
    let scene = two_hosts(program);
    let mut table = Table::default();
    for lost in 0..DISKS {
        let lease = Lease::new(&scene, &format!("R{lost}"));
        let shared = lease.resource.clone().shared();
        let (mut first, mut second) = clients(&scene);
        table.expect("host 1 shares", first.acquire_one(&shared), 0);
        lease.lose(lost);
        table.expect("host 2 shares", second.acquire_one(&shared), 0);
        table.expect("host 2 alone", second.convert(&lease.resource), -11);
        lease.bring_back(lost);
        table.expect("host 2 alone, with every disk", second.convert(&lease.resource), -11);
        table.expect("host 1 lets go", first.release_one(&shared), 0);
        table.expect("host 2 alone at last", second.convert(&lease.resource), 0);
        table.expect("host 1 is refused", first.acquire_one(&shared), -243);
    }
}
