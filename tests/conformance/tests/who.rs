//! `sanlock who`: who holds what, how that host is, and when its lease could be taken. Our command, beside our daemon and the
//! original's, and without one; the original has no such command.

use std::fs::Permissions;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use sanlock_conformance::bounded::{self, CLIENT_LIMIT, Output};
use sanlock_conformance::dead_owner::registered;
use sanlock_conformance::host::pid_of;
use sanlock_conformance::program::missing;
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

/// What the daemon has joined it calls by one name; a link, or a path from here, leads there too.
#[test]
fn a_lockspace_is_known_by_another_spelling_of_its_path() {
    let scene = two_hosts(Program::Ours, Storage::file());
    let storage = scene.storage();
    let holder = Holder::start(scene.host(1), &[&storage.resource_arg(1)]);
    let link = storage.dir().join("link");
    std::os::unix::fs::symlink(storage.path(), &link).unwrap_or_else(|error| panic!("{error}"));
    let other = storage.dir().join("other");
    std::fs::copy(storage.path(), &other).unwrap_or_else(|error| panic!("{error}"));
    let output = who(scene.host(1), &[&format!("{}:0", link.display())]).success();
    for line in [
        format!("lockspace {LOCKSPACE} on {}:0, this host is host 2\n", link.display()),
        format!("on this host: process {} (sleep) holds R1, version 1\n", holder.pid()),
        "hosts as this host's daemon sees them\n".to_owned(),
    ] {
        assert!(output.stdout.contains(&line), "{line}: {output}");
    }
    // Not what only has the same name.
    let output = who(scene.host(1), &["--watch", "0", &format!("{}:0", other.display())]).success();
    assert!(output.stdout.contains("this host's daemon is not in the lockspace"), "{output}");
    // Neither where it is named, nor a copy of what is held.
    let space = format!("{LOCKSPACE}:0:{}:0", other.display());
    for target in [LOCKSPACE.to_owned(), format!("{LOCKSPACE}:R1:{}:{}", other.display(), storage.offset(1))]
    {
        let output = who(scene.host(1), &["--watch", "0", "-s", &space, &target]).success();
        assert!(output.stdout.contains("this host's daemon is not in the lockspace"), "{output}");
        assert!(!output.stdout.contains("on this host"), "{output}");
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
        output.stdout.contains("generation 1: FAIL, no renewal seen for ").then_some(output)
    });
    let age = number_before(&failing.stdout, " s\n");
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

/// It stays on the disk after whoever asked has got what he wanted.
#[test]
fn a_request_that_was_fulfilled_is_none_any_more() {
    let scene = two_hosts(Program::Ours, Storage::file());
    let (storage, resource) = (scene.storage(), scene.storage().resource_arg(1));
    let mut owner = registered(scene.host(0));
    assert_eq!(owner.acquire_one(&storage.resource(1)), 0);
    let asked = scene.host(1).client(&["request", "-r", &format!("{resource}:2"), "-f", "2"]);
    assert_eq!(asked.result(), Some(0), "{asked}");
    let output = who(scene.host(1), &[&resource]).success();
    assert!(output.stdout.contains("\n  requested: version 2, "), "{output}");
    assert_eq!(owner.release_one(&storage.resource(1)), 0);
    let mut next = registered(scene.host(1));
    assert_eq!(next.acquire_one(&storage.resource(1)), 0);
    for held in [true, false] {
        let output = who(scene.host(1), &[&resource]).success();
        assert!(output.stdout.contains(", lease version 2\n"), "{output}");
        assert!(!output.stdout.contains("requested: "), "held {held}: {output}");
        let json = who(scene.host(1), &["--json", &resource]).success();
        assert!(json.stdout.contains("\"request\": null"), "held {held}: {json}");
        if held {
            assert_eq!(next.release_one(&storage.resource(1)), 0);
        }
    }
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

/// A lease does not say how many disks it has. By its name one is found, and that one may be behind.
#[test]
fn a_lease_that_was_found_by_its_name_is_said_to_be_of_one_disk() {
    let scene = two_hosts(Program::Ours, Storage::file());
    let storage = scene.storage();
    let others: Vec<String> = (0..2).map(|n| storage.extra_file(&format!("disk-{n}"), 1)).collect();
    let resource = format!("{LOCKSPACE}:M:{}:{}:0:{}:0", place(storage, 1), others[0], others[1]);
    let _ = scene.host(0).client(&["init", "-r", &resource]).success();
    let file = std::fs::File::options().read(true).write(true).open(storage.path());
    let file = file.unwrap_or_else(|error| panic!("{}: {error}", storage.path()));
    let mut behind = vec![0; 1 << 20];
    file.read_exact_at(&mut behind, storage.offset(1)).unwrap_or_else(|error| panic!("{error}"));
    let _holder = Holder::start(scene.host(0), &[&resource]);
    file.write_all_at(&behind, storage.offset(1)).unwrap_or_else(|error| panic!("{error}"));

    let name = format!("{LOCKSPACE}:M");
    let warning = "\n  found on one disk by its name; if the lease has several disks, name them all: \
                   LOCKSPACE:RESOURCE:PATH:OFFSET:PATH:OFFSET...\n";
    let ask = |host: usize, target: &str| {
        let text = who(scene.host(host), &[target]).success();
        (text, who(scene.host(host), &["--json", target]).success())
    };
    let (text, json) = ask(1, &name);
    assert!(text.stdout.contains(": free, ") && text.stdout.contains(warning), "{text}");
    assert!(json.stdout.contains("\"found_by_name\": true"), "{json}");
    // Who holds it knows its disks.
    for (host, target) in [(0, &name), (1, &resource)] {
        let (text, json) = ask(host, target);
        assert!(text.stdout.contains(": held exclusively, "), "{target}: {text}");
        assert!(!text.stdout.contains("by its name"), "{target}: {text}");
        assert!(json.stdout.contains("\"found_by_name\": false"), "{target}: {json}");
    }
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
    // With room for thousands of leases behind those that there are.
    let large = std::fs::File::options().write(true).open(scene.storage().path());
    large.and_then(|file| file.set_len(9 << 30)).unwrap_or_else(|error| panic!("{error}"));
    let output = who(scene.host(1), &["LS:XX"]);
    let told = "it does not begin within 8192 MiB from the lockspace's lease on";
    table.expect(&format!("{output}"), (output.code, output.stderr.contains(told)), (1, true));
    let output = who_alone(&scene, &[LOCKSPACE]);
    table.expect(&format!("{output}"), output.code, 1);
    table.expect(&format!("{output}"), output.stderr.contains("no daemon of this host could be asked"), true);
}

/// Asks once the record of a host id was overwritten with zeros, and the answer has these words; again and again, for a renewal that was
/// under way may have put it back.
fn zeroed(storage: &Storage, host_id: u64, word: &str, ask: impl Fn() -> Output) -> Output {
    let file = std::fs::File::options().write(true).open(storage.path());
    let file = file.unwrap_or_else(|error| panic!("{}: {error}", storage.path()));
    bounded::poll_for(word, Duration::from_secs(60), || {
        let written = file.write_all_at(&[0; 512], (host_id - 1) * 512).and_then(|()| file.sync_all());
        written.unwrap_or_else(|error| panic!("{}: {error}", storage.path()));
        std::thread::sleep(Duration::from_secs(3));
        let output = ask().success();
        output.stdout.contains(word).then_some(output)
    })
}

/// The daemon says of such a record what it says of one of a host that has left.
#[test]
fn an_owner_whose_host_id_record_is_damaged_is_not_taken_for_gone() {
    let scene = two_hosts(Program::Ours, Storage::file());
    let (storage, resource) = (scene.storage(), scene.storage().resource_arg(1));
    // Its lockspace fails: the daemon stops whoever uses it.
    let _owner = Holder::start(scene.host(1), &[&resource]);
    let title = "\nhost 2 \"host2\" generation 1: UNKNOWN, its host id record is damaged: ";
    let output = zeroed(storage, 2, title, || who(scene.host(0), &[&resource]));
    let advice = format!(
        "\n  can be taken by nobody while that record is damaged, and that host may be alive: see 'sanlock fsck {}:0'\n",
        storage.path()
    );
    assert!(output.stdout.contains(&advice), "{output}");
    assert!(!output.stdout.contains("can be taken now"), "{output}");
    let json = who(scene.host(0), &["--json", &resource]).success();
    for member in ["\"state\": \"UNKNOWN\"", "\"takeover_s\": null", "\"damage\": \"no lease at this place"] {
        assert!(json.stdout.contains(member), "{member}: {json}");
    }
    let members = who(scene.host(0), &[LOCKSPACE]).success();
    let damaged = "\n  damaged host id records, so that nobody can take what these hosts hold: host 2; see ";
    assert!(members.stdout.contains(damaged) && members.stdout.contains(title), "{members}");
    // And nobody can take it.
    let mut other = registered(scene.host(0));
    assert_eq!(other.acquire_one(&storage.resource(1)), -223);
}

/// The first record is the one from which the sizes of a lockspace are read.
#[test]
fn without_a_daemon_a_damaged_record_is_told_from_one_that_was_not_found() {
    let mut scene = two_hosts(Program::Ours, Storage::file());
    let (resource, lockspace) = (scene.storage().resource_arg(1), scene.storage().lockspace_arg(0));
    let _owner = Holder::start(scene.host(0), &[&resource]);
    scene.host_mut(0).kill();
    let title = "\nhost 1 generation 1: UNKNOWN, its host id record is damaged: ";
    let output = zeroed(scene.storage(), 1, title, || who_alone(&scene, &["-s", &lockspace, &resource]));
    assert!(output.stdout.contains("see 'sanlock fsck "), "{output}");
    assert!(!output.stdout.contains("give its lockspace with -s"), "{output}");
}

/// What the lease says is known without its lockspace.
#[test]
fn where_the_lockspace_cannot_be_read_the_lease_is_shown() {
    let scene = two_hosts(Program::Ours, Storage::file());
    let resource = scene.storage().resource_arg(1);
    let _holder = Holder::start(scene.host(0), &[&resource]);
    let empty = scene.storage().extra_file("empty", 1);
    for (path, why) in [("/nonexistent/lockspace", "No such file"), (&empty, "no lease at this place")] {
        let lockspace = format!("{LOCKSPACE}:0:{path}:0");
        let output = who_alone(&scene, &["-s", &lockspace, &resource]).success();
        assert!(output.stdout.contains(": held exclusively, lease version 1\n"), "{path}: {output}");
        let owner = "\nhost 1 generation 1: UNKNOWN, its host id record cannot be looked at: ";
        let reason = output.stdout.split_once(owner).and_then(|(_, rest)| rest.lines().next());
        assert!(reason.is_some_and(|reason| reason.contains(why)), "{path}: {output}");
        let unknown = "\n  when it can be taken is not known: its lockspace cannot be read\n";
        assert!(output.stdout.contains(unknown), "{path}: {output}");
        let json = who_alone(&scene, &["--json", "-s", &lockspace, &resource]).success();
        for member in ["\"state\": \"UNKNOWN\"", "\"takeover_s\": null", "\"generation\": 1", why] {
            assert!(json.stdout.contains(member), "{path}: {member}: {json}");
        }
        // Of a lockspace that is asked for itself nothing is left.
        let output = who_alone(&scene, &["-s", &lockspace, LOCKSPACE]);
        assert_eq!(output.code, 1, "{path}: {output}");
    }
}

/// It answers from memory: when it does not, it stands still.
#[test]
fn a_daemon_that_stands_still_is_not_waited_for_without_limit() {
    let scene = Scene::asked_by(Storage::file(), Program::Ours, Program::Ours, 1, 1);
    let (host, storage) = (scene.host(0), scene.storage());
    // When it goes on its lockspace has failed, and it stops whoever uses it.
    let _owner = Holder::start(host, &[&storage.resource_arg(1)]);
    let signal = |signal| kill(pid_of(host.pid()), signal).unwrap_or_else(|error| panic!("{error}"));
    signal(Signal::SIGSTOP);
    let read = who(host, &["--watch", "0", &storage.resource_arg(1)]);
    let unknown = who(host, &[LOCKSPACE]);
    signal(Signal::SIGCONT);
    let read = read.success();
    assert!(read.stdout.contains(": held exclusively, lease version 1\n"), "{read}");
    assert!(read.stdout.contains("processes are not known: the daemon does not answer\n"), "{read}");
    assert_eq!(unknown.code, 1, "{unknown}");
    assert!(unknown.stderr.contains("(the daemon does not answer)"), "{unknown}");
    assert!(unknown.stderr.contains("next: see whether the daemon is stopped"), "{unknown}");
}

/// Whoever may use the socket but not the disk gets what the daemon reads.
#[test]
fn where_the_caller_may_not_read_the_disk_the_daemon_does() {
    if !(nix::unistd::geteuid().is_root() || missing("root, to become somebody else,")) {
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
