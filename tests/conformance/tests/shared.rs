//! Shared leases and CONVERT, on either program and between the two (lease-algorithms.md 5, 6.5, 6.6; socket-protocol.md 7.26),
//! with what lies on disk.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use sanlock_conformance::dead_owner::registered;
use sanlock_conformance::scene::every_pair;
use sanlock_conformance::{Holder, Program, Resource, Scene, Table, bounded};

/// A refusal that comes and goes with another host's short hold, or with a release in the background.
const SOON: Duration = Duration::from_secs(60);

/// What a host's sector of resource 1 says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Block {
    released: bool,
    shared: Option<u64>,
    lver: u64,
}

const fn block(released: bool, shared: Option<u64>, lver: u64) -> Block {
    Block { released, shared, lver }
}

fn sector(scene: &Scene, index: u64) -> [u8; 512] {
    let mut bytes = [0; 512];
    let file = File::open(scene.storage().path()).expect("the leases can be opened");
    let at = scene.storage().offset(1) + index * 512;
    file.read_exact_at(&mut bytes, at).expect("the sector can be read");
    bytes
}

fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32
}

fn word(bytes: &[u8], at: usize) -> u32 {
    [3, 2, 1, 0].iter().fold(0, |word, n| word << 8 | u32::from(bytes[at + n]))
}

fn block_of(scene: &Scene, host_id: u64) -> Block {
    let bytes = sector(scene, host_id + 1);
    Block {
        released: word(&bytes, 52) & 1 != 0,
        shared: (word(&bytes, 128) & 1 != 0).then(|| number(&bytes, 136)),
        lver: number(&bytes, 40),
    }
}

/// Flags, owner, whether it is owned, version.
fn leader(scene: &Scene) -> (u32, u64, bool, u64) {
    let bytes = sector(scene, 0);
    (word(&bytes, 8), number(&bytes, 32), number(&bytes, 152) != 0, number(&bytes, 48))
}

/// Exclusive and shared.
fn both_modes(scene: &Scene) -> (Resource, Resource) {
    let resource = scene.storage().resource(1);
    (resource.clone(), resource.shared())
}

fn owners(scene: &Scene) -> Vec<(u64, u64, u64)> {
    let (result, _, owners) = scene.host(0).connect().read_resource_owners(&scene.storage().resource(1));
    assert_eq!(result, 0);
    owners.iter().map(|owner| (owner.host_id, owner.generation, owner.timestamp)).collect()
}

#[test]
fn two_hosts_share_and_neither_gets_it_alone() {
    every_pair(1, |scene| {
        let (exclusive, shared) = both_modes(scene);
        let mut table = Table::default();
        let mut first = registered(scene.host(0));
        let mut second = registered(scene.host(1));
        table.expect("host 1 shares", first.acquire_one(&shared), 0);
        table.expect("its block", block_of(scene, 1), block(true, Some(1), 1));
        table.expect("the leader", leader(scene), (0x10, 1, false, 1));
        table.expect("host 2 wants it alone", registered(scene.host(1)).acquire_one(&exclusive), -11);
        table.expect("the hold stands", block_of(scene, 1).shared, Some(1));
        table.expect("and the lease is free", leader(scene).2, false);
        table.expect("host 2 shares", second.acquire_one(&shared), 0);
        table.expect("its block", (block_of(scene, 2).released, block_of(scene, 2).shared), (true, Some(1)));
        table.expect("the owners", owners(scene), vec![(1, 1, 0), (2, 1, 0)]);
        table.expect(
            "no version is told",
            second.inquire(None).items(),
            vec![format!("{}:SH", scene.storage().resource_arg(1))],
        );
        table.expect("host 1 lets go", first.release_one(&shared), 0);
        table.expect("its block", (block_of(scene, 1).released, block_of(scene, 1).shared), (true, None));
        table.expect("the version stays", block_of(scene, 1).lver, 1);
        table.expect("host 1 wants it alone", first.acquire_one(&exclusive), -11);
        table.expect("host 2 lets go", second.release_one(&shared), 0);
        table.expect("host 1 has it alone", first.acquire_one(&exclusive), 0);
        table.expect("as on disk", (leader(scene).0, leader(scene).1, leader(scene).2), (0x10, 1, true));
        table.expect("host 2 cannot share it", second.acquire_one(&shared), -243);
        table.expect("host 1 lets go", first.release_one(&exclusive), 0);
        table.expect("now it can", second.acquire_one(&shared), 0);
    });
}

#[test]
fn a_conversion_needs_everybody_else_to_have_let_go() {
    every_pair(1, |scene| {
        let (exclusive, shared) = both_modes(scene);
        let mut table = Table::default();
        let mut first = registered(scene.host(0));
        let mut second = registered(scene.host(1));
        table.expect("nothing held", first.convert(&exclusive), -2);
        table.expect("host 1 shares", first.acquire_one(&shared), 0);
        table.expect("already shared", first.convert(&shared), -114);
        table.expect("host 2 shares", second.acquire_one(&shared), 0);
        table.expect("refused", first.convert(&exclusive), -11);
        table.expect("the hold stands", block_of(scene, 1).shared, Some(1));
        table.expect("and so does the other", block_of(scene, 2).shared, Some(1));
        table.expect("nobody owns it", leader(scene).2, false);
        table.expect("host 2 lets go", second.release_one(&shared), 0);
        table.expect("granted", first.convert(&exclusive), 0);
        table.expect("already exclusive", first.convert(&exclusive), -114);
        let lver = leader(scene).3;
        table.expect("the block", block_of(scene, 1), block(false, None, lver));
        table.expect("the leader", (leader(scene).1, leader(scene).2), (1, true));
        table.expect(
            "the version is told",
            first.inquire(None).items(),
            vec![format!("{}:{lver}", scene.storage().resource_arg(1))],
        );
        table.expect("host 2 is refused", second.acquire_one(&shared), -243);
        table.expect("back to shared", first.convert(&shared), 0);
        table.expect("the block", block_of(scene, 1), block(true, Some(1), lver));
        table.expect("the leader", leader(scene), (0x10, 1, false, lver));
        table.expect("host 2 shares again", second.acquire_one(&shared), 0);
        table.expect("all let go", (first.release_one(&shared), second.release_one(&shared)), (0, 0));
        table.expect("nothing is left", (block_of(scene, 1).shared, block_of(scene, 2).shared), (None, None));
    });
}

#[test]
fn processes_of_one_host_share_one_hold() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 1);
    let (exclusive, shared) = both_modes(&scene);
    let mut table = Table::default();
    let mut first = registered(scene.host(0));
    let mut second = registered(scene.host(0));
    table.expect("first", first.acquire_one(&shared), 0);
    let before = (leader(&scene), sector(&scene, 2));
    table.expect("second", second.acquire_one(&shared), 0);
    table.expect("the first once more", first.acquire_one(&shared), 0);
    table.expect("without a write", (leader(&scene), sector(&scene, 2)), before);
    table.expect("nobody alone", second.acquire_one(&exclusive), -17);
    table.expect("the first holds it twice", first.inquire(None).count, 2);
    table.expect("one of them", first.release_one(&shared), 0);
    table.expect("the other", first.release_one(&shared), 0);
    table.expect("none left", first.release_one(&shared), -1);
    table.expect("the second still shares", block_of(&scene, 1).shared, Some(1));
    table.expect("nothing was written", sector(&scene, 2), before.1);
    let status = scene.host(0).client(&["client", "status"]).stdout;
    let lines: Vec<&str> = status.lines().filter(|line| line.starts_with("r ")).collect();
    let line = format!("r {}:SH p {}", scene.storage().resource_arg(1), std::process::id());
    table.expect("status", lines, vec![line.as_str()]);
    table.expect("the last", second.release_one(&shared), 0);
    table.expect("the hold is gone", block_of(&scene, 1), block(true, None, 1));
}

/// The original grants an exclusive lease beside another process of the same host that shares it (CE5); ours refuses.
#[test]
fn a_conversion_beside_a_local_holder_is_a_difference() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 1);
    let (exclusive, shared) = both_modes(&scene);
    let mut first = registered(scene.host(0));
    let mut second = registered(scene.host(0));
    assert_eq!((first.acquire_one(&shared), second.acquire_one(&shared)), (0, 0));
    let expected = if program == Program::Ours { -11 } else { 0 };
    assert_eq!(first.convert(&exclusive), expected);
}

/// A host leaves with a shared hold on disk. Its mode block is cleared by who wants the lease alone: the original wipes the whole
/// sector, ours keeps the ballot record.
#[test]
fn the_mode_block_of_a_host_that_left_is_cleared() {
    every_pair(1, |scene| {
        let (exclusive, shared) = both_modes(scene);
        let holder = Holder::start(scene.host(1), &[&format!("{}:SH", scene.storage().resource_arg(1))]);
        assert_eq!(block_of(scene, 2).shared, Some(1));
        let mut first = registered(scene.host(0));
        assert_eq!(first.acquire_one(&exclusive), -11, "it is alive");
        assert_eq!(first.acquire_one(&shared), 0, "shared holds exclude nobody who shares");
        assert_eq!(first.release_one(&shared), 0);
        let lver = block_of(scene, 2).lver;
        scene.host(1).leave(scene.storage(), 2);
        assert_eq!(block_of(scene, 2).shared, Some(1), "leaving releases nothing on disk");
        drop(holder);
        bounded::wait_until("the lease to be had alone", SOON, || match first.acquire_one(&exclusive) {
            0 => true,
            -11 => false,
            other => panic!("{other}"),
        });
        let left = block_of(scene, 2);
        assert_eq!(left.shared, None);
        if scene.host(0).program() == Program::Ours {
            assert_eq!((left.lver, left.released), (lver, true), "rule R2");
        }
    });
}

#[test]
fn shared_leases_on_the_command_line() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 1);
    let host = scene.host(0);
    let resource = scene.storage().resource_arg(1);
    let shared = format!("{resource}:SH");
    let holder = Holder::start(host, &[&shared]);
    let pid = holder.pid().to_string();
    let convert = |resource: &str| {
        let output = host.client(&["client", "convert", "-r", resource, "-p", &pid]);
        (output.stdout, output.code)
    };
    let said = |result: i32| (format!("convert pid {pid}\nconvert done {result}\n"), i32::from(result != 0));
    let mut table = Table::default();
    table.expect("inquire", holder.leases(host), Some(vec![shared.clone()]));
    table.expect("already shared", convert(&shared), said(-114));
    table.expect("to exclusive", convert(&resource), said(0));
    table.expect("inquire", holder.leases(host), Some(vec![format!("{resource}:2")]));
    table.expect("to shared", convert(&shared), said(0));
    table.expect("another lease", convert("LS:R9:/x:0"), said(-2));
    let nothing = host.client(&["client", "convert", "-p", &pid]);
    table.expect("no resource", (nothing.stdout, nothing.code), said(-22));
}
