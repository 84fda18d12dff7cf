//! Screens as they are kept in `snapshots/`: `UPDATE_SCREENS=1 cargo test -p sanlock-top` writes them anew.

use super::*;
use crate::args::Sort;
use crate::snapshot::{Host, Lease, Process, Stage};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use sanlock_client::Renewal;
use sanlock_client::wire::flags::HostState;
use sanlock_lease::timing::IoTimeout;

const PLAIN: Look = Look { colours: false, unicode: true };

fn host(host_id: u64, name: &str, state: HostState, silent: Option<u64>) -> Host {
    Host { host_id, name: name.to_owned(), generation: 2, state: Some(state), io_timeout: 10, silent }
}

fn lease(resource: &str, pid: i32, list: &str) -> Lease {
    Lease {
        lockspace: "storage1".to_owned(),
        resource: resource.to_owned(),
        shared: resource.starts_with("iso"),
        version: 7,
        pid,
        list: list.to_owned(),
    }
}

/// A host with four lockspaces: fine, in trouble, failed, being joined.
fn snapshot() -> Snapshot {
    let renewals = (0..60u64).map(|n| Renewal {
        timestamp: n * 20,
        read_ms: 1 + n % 7,
        write_ms: if n % 20 == 3 { 900 * (1 + n / 20) } else { 2 },
        next_timeouts: if n == 50 { 2 } else { 0 },
        next_errors: 0,
    });
    let good = Lockspace {
        name: "storage1".to_owned(),
        host_id: 4,
        generation: 12,
        place: "/dev/vg/leases:0".to_owned(),
        io_timeout: Some(IoTimeout::DEFAULT),
        age: 8,
        renewals: renewals.collect(),
        hosts: Some(vec![
            host(1, "hypervisor-a.example", HostState::Live, Some(4)),
            host(2, "hypervisor-b.example", HostState::Fail, Some(95)),
            host(3, "hypervisor-c.example", HostState::Dead, Some(1200)),
            host(4, "hypervisor-d.example", HostState::Live, Some(8)),
            host(2000, "", HostState::Unknown, None),
        ]),
        ..Lockspace::default()
    };
    let old = |name: &str, age| Lockspace {
        name: name.to_owned(),
        age,
        renewals: Vec::new(),
        hosts: None,
        place: "/mnt/nfs/leases:1048576".to_owned(),
        ..good.clone()
    };
    let joining = Lockspace { stage: Stage::Joining, io_timeout: None, ..old("new", 0) };
    Snapshot {
        host_name: "hypervisor-d.example".to_owned(),
        version: "3.8.5".to_owned(),
        watchdog: true,
        monotime: 100_000,
        processes: vec![
            Process { pid: 4711, name: "libvirt-7".to_owned() },
            Process { pid: 99, name: String::new() },
        ],
        lockspaces: vec![
            good.clone(),
            old("storage2", 64),
            old("a-name-that-is-longer-than-the-column", 85),
            joining,
        ],
        leases: vec![
            lease("vm-disk-7", 4711, "held"),
            lease("iso-image", 99, "held"),
            lease("left-over", 4711, "orphan"),
            lease("vm-disk-8", 99, "add"),
        ],
    }
}

fn app() -> App {
    let mut app = App::new(Some("storage1".to_owned()), Sort::Name, 2);
    app.heard(Ok(snapshot()), "2026-11-22 12:00:00".to_owned());
    app
}

fn press(app: &mut App, keys: &[KeyCode]) {
    for key in keys {
        app.key(KeyEvent::new(*key, KeyModifiers::NONE), 0);
    }
}

fn buffer(app: &App, look: Look, passed: u64, (width, height): (u16, u16)) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(app, look, passed, frame.area(), frame.buffer_mut())).unwrap();
    terminal.backend().buffer().clone()
}

fn rows(buffer: &Buffer) -> String {
    let width = usize::from(buffer.area.width);
    let mut out = String::new();
    for row in buffer.content.chunks(width) {
        let row: String = row.iter().map(ratatui::buffer::Cell::symbol).collect();
        out.push_str(row.trim_end());
        out.push('\n');
    }
    out
}

/// Compares with the file kept, or writes it.
fn kept(name: &str, text: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/draw/snapshots").join(name);
    if std::env::var_os("UPDATE_SCREENS").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let expected =
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(text == expected, "{name} has changed:\n{text}");
}

#[test]
fn a_terminal_of_80_by_24() {
    kept("80x24.txt", &rows(&buffer(&app(), PLAIN, 0, (80, 24))));
}

#[test]
fn a_small_terminal_has_a_part_of_every_list() {
    let mut app = app();
    let text = rows(&buffer(&app, PLAIN, 0, (60, 12)));
    kept("60x12.txt", &text);
    // The selected lockspace is among those shown, wherever it is.
    press(&mut app, &[KeyCode::End]);
    assert!(rows(&buffer(&app, PLAIN, 0, (60, 12))).contains("> storage2"));
    press(&mut app, &[KeyCode::Home]);
    assert!(rows(&buffer(&app, PLAIN, 0, (60, 12))).contains("> a-name-that-is"));
}

#[test]
fn a_wide_terminal_shows_more_renewals() {
    let text = rows(&buffer(&app(), PLAIN, 0, (140, 40)));
    kept("140x40.txt", &text);
}

#[test]
fn without_unicode_everything_is_ascii() {
    let text = rows(&buffer(&app(), Look { colours: true, unicode: false }, 0, (80, 24)));
    assert!(text.is_ascii() && text.contains("!!"), "{text}");
}

#[test]
fn colours_are_used_only_where_they_are_wanted() {
    let coloured = |look| {
        let buffer = buffer(&app(), look, 0, (80, 24));
        buffer.content.iter().any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset)
    };
    assert!(coloured(Look { colours: true, unicode: true }));
    assert!(!coloured(PLAIN));
    // What has failed stands out all the same.
    let buffer = buffer(&app(), PLAIN, 0, (80, 24));
    let text = rows(&buffer);
    let row = text.lines().position(|line| line.contains("FAILED")).unwrap();
    let column = text.lines().nth(row).unwrap().find("FAILED").unwrap();
    let cell = &buffer.content[row * 80 + column];
    assert!(cell.modifier.contains(Modifier::REVERSED), "{cell:?}");
}

#[test]
fn help_and_too_small_terminals() {
    let mut app = app();
    press(&mut app, &[KeyCode::Char('?')]);
    let text = rows(&buffer(&app, PLAIN, 0, (80, 24)));
    for words in ["quit", "sort lockspaces", "SILENT seconds", "'sanlock who'"] {
        assert!(text.contains(words), "{text}");
    }
    press(&mut app, &[KeyCode::Char('x')]);
    assert!(!app.help && rows(&buffer(&app, PLAIN, 0, (80, 24))).contains("HOST (5) OF storage1"));
    assert!(rows(&buffer(&app, PLAIN, 0, (39, 24))).starts_with("39x24 is too small"));
    for size in [(1, 1), (0, 0), (40, 12), (500, 200)] {
        buffer(&app, PLAIN, 0, size);
    }
}

#[test]
fn ages_go_on_between_answers_and_a_daemon_that_stands_still_is_seen() {
    let app = app();
    let text = rows(&buffer(&app, PLAIN, 1, (80, 24)));
    let good = text.lines().find(|line| line.contains("> storage1")).unwrap();
    assert!(good.contains(" ok          9   71 "), "{good}");
    let text = rows(&buffer(&app, PLAIN, 30, (80, 24)));
    assert!(text.contains("NO ANSWER for 30 s") && text.contains("(30 s ago)"), "{text}");
    let good = text.lines().find(|line| line.contains("> storage1")).unwrap();
    assert!(good.contains(" late       38   42 "), "{good}");
}

#[test]
fn a_daemon_that_goes_away_leaves_its_last_answer_and_comes_back() {
    let mut app = app();
    app.heard(Err("connect: no such file; is it running?".to_owned()), "2026-11-22 12:00:02".to_owned());
    let text = rows(&buffer(&app, PLAIN, 2, (80, 24)));
    assert!(text.contains("NO DAEMON: connect") && text.contains("hypervisor-b.example"), "{text}");
    app.heard(Ok(Snapshot::default()), "2026-11-22 12:00:04".to_owned());
    let text = rows(&buffer(&app, PLAIN, 0, (80, 24)));
    assert!(!text.contains("NO DAEMON") && text.contains("in no lockspace"), "{text}");

    let mut never = App::new(None, Sort::Name, 2);
    assert!(
        rows(&buffer(&never, PLAIN, 3, (80, 24))).contains("Waiting for the daemon's answer, 3 s so far")
    );
    never.heard(Err("gone".to_owned()), String::new());
    assert!(rows(&buffer(&never, PLAIN, 3, (80, 24))).contains("NO DAEMON: gone."));
}

/// The names of the lockspaces in the order shown.
fn order(app: &App) -> Vec<&str> {
    app.lockspaces(0).iter().map(|lockspace| lockspace.name.as_str()).collect()
}

#[test]
fn keys_sort_select_and_scroll() {
    let mut app = app();
    let long = "a-name-that-is-longer-than-the-column";
    assert_eq!(order(&app), [long, "new", "storage1", "storage2"]);
    press(&mut app, &[KeyCode::Char('s')]);
    assert_eq!(order(&app), [long, "storage2", "storage1", "new"], "least time left first");
    press(&mut app, &[KeyCode::Char('s')]);
    assert_eq!(order(&app)[0], "storage1", "the only one with renewals is the slowest");
    // What is selected stays so.
    assert_eq!(app.current(0).unwrap().name, "storage1");
    press(&mut app, &[KeyCode::Char('s'), KeyCode::Down]);
    assert_eq!(app.current(0).unwrap().name, "storage2");
    press(&mut app, &[KeyCode::Down, KeyCode::PageUp]);
    assert_eq!(app.current(0).unwrap().name, long);
    press(&mut app, &[KeyCode::Down, KeyCode::Down, KeyCode::Tab, KeyCode::Down, KeyCode::Down]);
    assert_eq!((app.focus, app.hosts_from), (Pane::Hosts, 2));
    let text = rows(&buffer(&app, PLAIN, 0, (80, 14)));
    assert!(text.contains("(3-4 of 5)") && !text.contains("hypervisor-b"), "{text}");
    // The last line is the last one shown, and the next key moves what is shown.
    press(&mut app, &[KeyCode::End]);
    assert!(rows(&buffer(&app, PLAIN, 0, (80, 14))).contains("(4-5 of 5)"));
    press(&mut app, &[KeyCode::Up]);
    assert!(rows(&buffer(&app, PLAIN, 0, (80, 14))).contains("(3-4 of 5)"));
    press(&mut app, &[KeyCode::End, KeyCode::Tab, KeyCode::End]);
    let [hosts, leases] = app.rooms.get();
    assert_eq!((app.hosts_from, app.leases_from), (5 - hosts, 4 - leases));
    // However far it was scrolled: no room is left empty while there is something to show.
    let text = rows(&buffer(&app, PLAIN, 0, (80, 40)));
    assert!(text.contains("hypervisor-a") && text.contains("vm-disk-8"), "{text}");
}

#[test]
fn the_same_as_text() {
    let mut other = app();
    kept("once.txt", &text(&app(), false, 80, None));
    let one = text(&app(), false, 80, Some("storage2"));
    assert!(one.contains("storage2") && !one.contains("storage1"), "{one}");
    other.heard(Ok(Snapshot::default()), String::new());
    assert!(text(&other, true, 80, None).contains("0 lockspaces, 0 leases, 0 processes"));
}

#[test]
fn rooms_are_shared() {
    for (total, wanted, rooms) in [
        (17, [4, 5, 4], [4, 5, 4]),
        (17, [1, 200, 300], [1, 8, 8]),
        (5, [10, 10, 10], [2, 2, 1]),
        (0, [1, 1, 1], [0, 0, 0]),
    ] {
        assert_eq!(share(total, wanted), rooms);
    }
}
