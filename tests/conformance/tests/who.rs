//! `sanlock who`: who holds what, how that host is, and when its lease could be taken. Our command, beside our daemon and the
//! original's, and without one; the original has no such command.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::time::Duration;

use sanlock_conformance::bounded::{self, CLIENT_LIMIT, Output};
use sanlock_conformance::dead_owner::registered;
use sanlock_conformance::storage::{LOCKSPACE, StorageKind};
use sanlock_conformance::{Holder, Host, Program, Scene, Storage, Table};

/// A host is dead after 8 io timeouts of 1 s and 60 s for its watchdog; one second more, as ages are whole seconds.
const DEAD: u64 = 69;
/// A renewal every 2 s, and some patience.
const FRESH: u64 = 8;

/// Asks on a host.
fn who(host: &Host, args: &[&str]) -> Output {
    host.client(&[&["who"], args].concat())
}

/// Asks where no daemon runs.
fn who_alone(scene: &Scene, args: &[&str]) -> Output {
    let mut command = std::process::Command::new(Program::Ours.path());
    command.arg("who").args(args).env("SANLOCK_RUN_DIR", scene.storage().dir().join("no-daemon"));
    bounded::run(command, CLIENT_LIMIT)
}

fn place(storage: &Storage, n: u64) -> String {
    format!("{}:{}", storage.path(), storage.offset(n))
}

/// The number before `word` in the line that contains it.
fn number_before(text: &str, word: &str) -> Option<u64> {
    let (before, _) = text.split_once(word)?;
    before.rsplit(|c: char| !c.is_ascii_digit()).find(|part| !part.is_empty())?.parse().ok()
}

/// Two hosts of `program`, asked with our command line.
fn two_hosts(program: Program, storage: Storage) -> Scene {
    let scene = Scene::asked_by(storage, program, Program::Ours, 2, 2);
    scene.wait_until_all_see_all();
    scene
}

/// Whether a holder that renews is shown as such.
fn is_fresh(output: &Output) -> bool {
    let age = number_before(&output.stdout, " s ago");
    let wait = number_before(&output.stdout, " s at the earliest");
    age.is_some_and(|age| age <= FRESH) && wait.is_some_and(|wait| (DEAD - FRESH..=DEAD).contains(&wait))
}

#[test]
fn an_exclusive_holder_is_shown_from_both_hosts_by_every_kind_of_name() {
    let programs = [Program::Ours, Program::Reference].into_iter().filter(|program| program.available());
    let mut table = Table::default();
    for program in programs {
        let scene = two_hosts(program, Storage::file());
        let storage = scene.storage();
        let holder = Holder::start(scene.host(0), &[&storage.resource_arg(1)]);
        let title = format!("resource {LOCKSPACE}:R1: held exclusively, lease version 1");
        for target in [storage.resource_arg(1), format!("{LOCKSPACE}:R1"), place(storage, 1)] {
            let case = format!("{} {target}", program.word());
            let there = who(scene.host(1), &[&target]).success();
            table.expect(
                &format!("{case}: title {there}"),
                there.stdout.lines().next(),
                Some(title.as_str()),
            );
            let owner = "\nhost 1 \"host1\" generation 1: LIVE, last renewal seen ";
            table.expect(&format!("{case}: owner {there}"), there.stdout.contains(owner), true);
            table.expect(&format!("{case}: times {there}"), is_fresh(&there), true);
            table.expect(&format!("{case}: no process"), there.stdout.contains("on this host:"), false);

            let here = who(scene.host(0), &[&target]).success();
            let owner = "\nhost 1 \"host1\" generation 1, this host: LIVE";
            table.expect(&format!("{case}: here {here}"), here.stdout.contains(owner), true);
            let process = format!("\non this host: process {} (sleep) holds it\n", holder.pid());
            table.expect(&format!("{case}: process {here}"), here.stdout.contains(&process), true);
        }
        let free = who(scene.host(1), &[&storage.resource_arg(2)]).success();
        let title = format!("resource {LOCKSPACE}:R2: free, lease version 0\n");
        table.expect(&format!("free {free}"), free.stdout.starts_with(&title), true);
        table.expect("nobody", free.stdout.contains("\nhost "), false);
    }
}

#[test]
fn a_lockspace_is_shown_with_its_hosts_and_what_is_held_here() {
    let scene = two_hosts(Program::Ours, Storage::file());
    let storage = scene.storage();
    let holder = Holder::start(scene.host(1), &[&storage.resource_arg(1), &storage.resource_arg(2)]);
    for target in [LOCKSPACE.to_owned(), storage.lockspace_arg(2), place(storage, 0)] {
        let output = who(scene.host(1), &[&target]).success();
        let title = format!("lockspace {LOCKSPACE} on {}:0, this host is host 2\n", storage.path());
        assert!(output.stdout.starts_with(&title), "{target}: {output}");
        for line in [
            "host 1 \"host1\" generation 1: LIVE, last renewal seen ".to_owned(),
            "host 2 \"host2\" generation 1, this host: LIVE".to_owned(),
            format!("on this host: process {} (sleep) holds R1, version 1\n", holder.pid()),
            format!("on this host: process {} (sleep) holds R2, version 1\n", holder.pid()),
        ] {
            assert!(output.stdout.contains(&line), "{target}: {line}: {output}");
        }
    }
}

/// The disk says enough, on every kind of storage.
#[test]
fn without_a_daemon_the_disk_is_watched() {
    for kind in StorageKind::ALL {
        let Some(storage) = Storage::new(kind) else { continue };
        let mut scene = Scene::asked_by(storage, Program::Ours, Program::Ours, 1, 1);
        let resource = scene.storage().resource_arg(1);
        let _holder = Holder::start(scene.host(0), &[&resource]);
        let watched = who_alone(&scene, &[&resource]).success();
        assert!(watched.stdout.contains("held exclusively, lease version 1\n"), "{kind:?}: {watched}");
        assert!(
            watched.stdout.contains("\nhost 1 \"host1\" generation 1: LIVE, last renewal seen "),
            "{kind:?}: {watched}"
        );
        assert!(is_fresh(&watched), "{kind:?}: {watched}");
        assert!(watched.stdout.contains("processes are not known"), "{kind:?}: {watched}");
        let members = who_alone(&scene, &[&place(scene.storage(), 0)]).success();
        assert!(members.stdout.contains("\nhost 1 \"host1\" generation 1: LIVE"), "{kind:?}: {members}");
        let glimpsed = who_alone(&scene, &["--watch", "0", &resource]).success();
        assert!(glimpsed.stdout.contains(": UNKNOWN, not seen renewing in 0 s\n"), "{kind:?}: {glimpsed}");

        scene.host_mut(0).kill();
        let silent = who_alone(&scene, &["--watch", "3", &resource]).success();
        let needs = number_before(&silent.stdout, " s more");
        // As long as it took, which on a busy machine may be longer.
        let told = silent.stdout.split_once(": UNKNOWN, not seen renewing in ");
        let watched = told.and_then(|(_, rest)| number_before(rest, " s\n"));
        assert!(watched.is_some_and(|seconds| seconds >= 3), "{kind:?}: {silent}");
        assert_eq!(
            needs.zip(watched).map(|(needs, watched)| needs + watched),
            Some(DEAD),
            "{kind:?}: {silent}"
        );
    }
}

#[test]
fn a_silent_holder_is_counted_down_to_its_death() {
    let mut scene = two_hosts(Program::Ours, Storage::file());
    let resource = scene.storage().resource_arg(1);
    let mut connection = registered(scene.host(0));
    assert_eq!(connection.acquire_one(&scene.storage().resource(1)), 0);
    scene.host_mut(0).kill();
    let failing = bounded::poll_for("host 1 to fail", Duration::from_secs(30), || {
        let output = who(scene.host(1), &[&resource]).success();
        output.stdout.contains("generation 1: FAIL, last renewal seen ").then_some(output)
    });
    let age = number_before(&failing.stdout, " s ago");
    let wait = number_before(&failing.stdout, " s at the earliest");
    assert_eq!(age.zip(wait).map(|(age, wait)| age + wait), Some(DEAD), "{failing}");
    assert!(failing.stdout.contains("\n  can be taken in "), "{failing}");
    // Joined again: the holder is another instance of that host.
    scene.host_mut(0).restart();
    let join = ["add_lockspace", "-s", &scene.storage().lockspace_arg(1), "-o", "1"];
    let _ = scene.host(0).client_within(Duration::from_secs(120), &join).success();
    let left = bounded::poll_for("the new instance to be seen", Duration::from_secs(30), || {
        let output = who(scene.host(1), &[&resource]).success();
        let gone = ": GONE, has left the lockspace or joined it again since\n";
        output.stdout.contains(gone).then_some(output)
    });
    assert!(left.stdout.contains("\n  can be taken now\n"), "{left}");
}

#[test]
fn shared_holders_and_requests_are_shown() {
    let mut scene = two_hosts(Program::Ours, Storage::file());
    let resource = scene.storage().resource_arg(1);
    let shared = format!("{resource}:SH");
    let _holders: Vec<Holder> = scene.hosts().iter().map(|host| Holder::start(host, &[&shared])).collect();
    let output = who(scene.host(1), &[&resource]).success();
    assert!(output.stdout.contains(": held shared, lease version "), "{output}");
    for host in ["\nhost 1 \"host1\" generation 1: LIVE", "\nhost 2 \"host2\" generation 1, this host: LIVE"]
    {
        assert!(output.stdout.contains(host), "{output}");
    }
    assert!(output.stdout.contains("(sleep) holds it shared\n"), "{output}");

    // Nobody is there to act on a request for the other one.
    let other = scene.storage().resource_arg(2);
    let _holder = Holder::start(scene.host(0), &[&other]);
    scene.host_mut(0).kill();
    let asked = scene.host(1).client(&["request", "-r", &format!("{other}:2"), "-f", "2"]);
    assert_eq!(asked.result(), Some(0), "{asked}");
    let output = who(scene.host(1), &[&other]).success();
    assert!(
        output
            .stdout
            .contains("\n  requested: version 2, force mode 2 (its holder is asked to give it up)\n"),
        "{output}"
    );
}

#[test]
fn of_several_disks_the_majority_counts_and_a_lost_one_is_told() {
    let scene = two_hosts(Program::Ours, Storage::file());
    let paths: Vec<String> = (0..3).map(|n| scene.storage().extra_file(&format!("disk-{n}"), 1)).collect();
    let places: Vec<String> = paths.iter().map(|path| format!("{path}:0")).collect();
    let resource = format!("{LOCKSPACE}:M:{}", places.join(":"));
    let _ = scene.host(0).client(&["init", "-r", &resource]).success();
    let _holder = Holder::start(scene.host(0), &[&resource]);
    let lost = |n: usize| std::fs::rename(&paths[n], format!("{}.lost", paths[n]));
    lost(1).unwrap_or_else(|error| panic!("{error}"));
    let output = who(scene.host(1), &[&resource]).success();
    assert!(output.stdout.contains(&format!("\n  on {}:0: cannot be read: ", paths[1])), "{output}");
    assert!(output.stdout.contains("\nhost 1 \"host1\" generation 1: LIVE"), "{output}");
    lost(2).unwrap_or_else(|error| panic!("{error}"));
    let output = who(scene.host(1), &[&resource]);
    assert_eq!(output.code, 1, "{output}");
    assert!(output.stderr.contains("1 of 3 disks of the lease can be used"), "{output}");
}

#[test]
fn what_cannot_be_found_is_an_error_that_says_what_to_give() {
    let scene = two_hosts(Program::Ours, Storage::file());
    let mut table = Table::default();
    let nothing = scene.storage().extra_file("nothing", 1);
    for (target, told) in [
        ("XX", "is not in this lockspace; give its place as PATH:OFFSET"),
        ("LS:XX", "its place is not known"),
        ("XX:R1", "its place is not known"),
        (&format!("{nothing}:0"), "no lease begins there"),
        (
            &format!("LS:XX:{}", place(scene.storage(), 1)),
            "the lease belongs to resource \"R1\", expected \"XX\"",
        ),
        ("/no/such/path", "No such file"),
    ] {
        let output = who(scene.host(1), &[target]);
        table.expect(&format!("{target}: {output}"), (output.code, output.stderr.contains(told)), (1, true));
        table.expect(
            &format!("{target}: next {output}"),
            output.stderr.contains("\nsanlock: who: next: "),
            true,
        );
        table.expect(&format!("{target}: stdout"), output.stdout.as_str(), "");
    }
    let output = who_alone(&scene, &[LOCKSPACE]);
    table.expect(&format!("{output}"), output.code, 1);
    table.expect(&format!("{output}"), output.stderr.contains("no daemon of this host could be asked"), true);
}

/// Whoever may use the socket but not the disk gets what the daemon reads.
#[test]
fn where_the_caller_may_not_read_the_disk_the_daemon_does() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: needs root, to become somebody else");
        return;
    }
    let scene = two_hosts(Program::Ours, Storage::file());
    let (host, storage) = (scene.host(1), scene.storage());
    let _holder = Holder::start(scene.host(0), &[&storage.resource_arg(1)]);
    let allow = |path: &Path, mode: u32| {
        let done = std::fs::set_permissions(path, Permissions::from_mode(mode));
        done.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    };
    let program = storage.dir().join("sanlock");
    sanlock_executable::copy(&Program::Ours.path(), &program, 0o755);
    allow(storage.dir(), 0o755);
    allow(Path::new(storage.path()), 0o600);
    allow(host.run_dir(), 0o755);
    allow(&host.run_dir().join("sanlock.sock"), 0o666);
    let ask = |args: &[&str]| {
        let mut command = std::process::Command::new(&program);
        command.uid(65534).gid(65534).current_dir("/").arg("who").args(args);
        command.env("SANLOCK_RUN_DIR", host.run_dir());
        bounded::run(command, CLIENT_LIMIT)
    };
    let output = ask(&[&storage.resource_arg(1)]).success();
    assert!(output.stdout.contains(": held exclusively, lease version 1\n"), "{output}");
    assert!(output.stdout.contains(": cannot be read: "), "{output}");
    assert!(output.stdout.contains("\nhost 1 \"host1\" generation 1: LIVE, last renewal seen "), "{output}");
    assert!(output.stdout.contains("the daemon read the lease, so that requests are not known"), "{output}");
    // What begins at a place only the disk can tell.
    let output = ask(&[&place(storage, 1)]);
    assert_eq!(output.code, 1, "{output}");
    assert!(output.stderr.contains("EACCES (-13)") && output.stderr.contains("group sanlock"), "{output}");
}
