//! Steps that are not about the leases of a process: lockspaces, indexes, events, the daemon itself.

use sanlock_conformance::raw::{SELF, cmd, flag};

use super::Steps;
use crate::ground::{AREA, BLANK, ENTRIES, ENTRY_NAMES, FIRST, INDEX};
use crate::request::{Data2, Part, Request, Step, Where, Who};

impl Steps {
    pub(super) fn joining(&mut self) -> Step {
        let who = self.who();
        let space = self.space();
        if self.dice.chance(80) {
            let data = self.dice.one_of(&[1, 1, 1, 2]);
            let flags = self.maybe(30, flag::ADD_ASYNC);
            if flags != 0 {
                self.joining = Some((space.clone(), self.dice.below(6)));
            }
            return Step::Ask(who, Request { flags, data, ..Request::new(cmd::ADD_LOCKSPACE, vec![space]) });
        }
        let flags = self.maybe(40, flag::REM_ASYNC) | self.maybe(40, flag::REM_UNUSED);
        Step::Ask(who, Request { flags, ..Request::new(cmd::REM_LOCKSPACE, vec![space]) })
    }

    /// Something that a lockspace which is being joined has to do with.
    pub(super) fn about_a_join(&mut self, space: Part) -> Step {
        let space = if self.dice.chance(85) { space } else { self.space() };
        let request = match self.dice.below(12) {
            0..3 => Request::new(cmd::INQ_LOCKSPACE, vec![space]),
            3 => Request { flags: flag::INQ_WAIT, ..Request::new(cmd::INQ_LOCKSPACE, vec![space]) },
            4 => Request { data: 1, ..Request::new(cmd::ADD_LOCKSPACE, vec![space]) },
            // Not its removal: whether the join has written its record by then is a matter of milliseconds.
            5 => Request { flags: flag::ADD_ASYNC, data: 1, ..Request::new(cmd::ADD_LOCKSPACE, vec![space]) },
            6 => Request::new(cmd::GET_HOSTS, vec![space]),
            7 => Request::new(cmd::GET_LOCKSPACES, Vec::new()),
            8 => Request {
                data: self.dice.one_of(&[1, 2, 4, 8, 3]),
                ..Request::new(cmd::SET_CONFIG, vec![space])
            },
            9 => Request::new(cmd::END_EVENT, vec![space]),
            10 => Request::new(cmd::RENEWAL, vec![space]),
            _ => Request::new(cmd::HOST_STATUS, vec![space]),
        };
        Step::Ask(Who::Fresh, request)
    }

    pub(super) fn index(&mut self) -> Step {
        let who = self.who();
        let mut lockspace = FIRST;
        let mut at = (Where::Leases, INDEX * AREA);
        let mut sizes = 0;
        if self.dice.chance(8) {
            match self.dice.below(4) {
                0 => lockspace = self.dice.one_of(&["", "LS9", "LS2"]),
                1 => {
                    at.1 =
                        self.dice.one_of(&[0, BLANK * AREA, INDEX * AREA + 512, INDEX * AREA + 100, 1 << 40])
                }
                2 => at.0 = self.dice.one_of(&[Where::Missing, Where::Empty, Where::Directory]),
                _ => sizes = self.dice.one_of(&[flag::SECTOR512, flag::SECTOR512 | flag::ALIGN1M]),
            }
        }
        let index = Part::Index { lockspace, at, flags: sizes, max_resources: 4 };
        let name = if self.dice.chance(75) { self.dice.one_of(&ENTRY_NAMES) } else { "" };
        let offset = AREA * (ENTRIES.start + self.dice.below(ENTRIES.end - ENTRIES.start));
        let offset = if self.dice.chance(8) { offset + self.dice.one_of(&[512, 100]) } else { offset };
        let offset = if self.dice.chance(50) { offset } else { 0 };
        let entry = Part::Entry { name, at: offset };
        let without = self.maybe(10, flag::RX_NO_LOCKSPACE);
        let (cmd, flags, has_entry) = match self.dice.below(100) {
            0..3 => (cmd::FORMAT_RINDEX, 0, false),
            3..30 => (cmd::CREATE_RESOURCE, 0, true),
            30..50 => (cmd::DELETE_RESOURCE, 0, true),
            50..80 => (cmd::LOOKUP_RINDEX, 0, true),
            80..93 => {
                let flags =
                    [flag::RX_UPDATE_ADD, flag::RX_UPDATE_REM, flag::RX_UPDATE_ADD | flag::RX_UPDATE_REM, 0];
                (cmd::UPDATE_RINDEX, self.dice.one_of(&flags), true)
            }
            _ => (cmd::REBUILD_RINDEX, 0, false),
        };
        let parts = if has_entry { vec![index, entry] } else { vec![index] };
        let data2 =
            Data2::Number(if cmd == cmd::CREATE_RESOURCE { self.dice.one_of(&[0, 0, 10]) } else { 0 });
        Step::Ask(who, Request { flags: flags | without, data2, ..Request::new(cmd, parts) })
    }

    pub(super) fn events(&mut self) -> Step {
        let space = self.space();
        let event = Part::Event {
            host_id: self.dice.one_of(&[0, 1, 2, 3, 250, 251, 2000, 2001]),
            generation: self.dice.below(2),
            event: self.dice.below(3),
            data: self.dice.below(3),
        };
        match self.dice.below(100) {
            0..55 => {
                let flags = self.maybe(20, flag::SETEV_CUR_GENERATION)
                    | self.maybe(10, 0x2)
                    | self.maybe(10, flag::SETEV_CLEAR_EVENT)
                    | self.maybe(20, flag::SETEV_REPLACE)
                    | self.maybe(10, 0x10);
                let request = Request { flags, ..Request::new(cmd::SET_EVENT, vec![space, event]) };
                Step::Ask(self.who(), request)
            }
            55..80 => Step::Listen(Request::new(cmd::REG_EVENT, vec![space, event])),
            _ => Step::Ask(self.who(), Request::new(cmd::END_EVENT, vec![space])),
        }
    }

    pub(super) fn about_lockspaces(&mut self) -> Step {
        let who = self.who();
        let space = self.space();
        let request = match self.dice.below(6) {
            0 => Request {
                flags: self.maybe(20, flag::INQ_WAIT),
                ..Request::new(cmd::INQ_LOCKSPACE, vec![space])
            },
            1 => Request::new(cmd::GET_HOSTS, vec![space]),
            2 => Request::new(cmd::HOST_STATUS, vec![space]),
            3 => Request::new(cmd::RENEWAL, vec![space]),
            4 => Request::new(cmd::GET_LOCKSPACES, Vec::new()),
            _ => {
                let data = self.dice.one_of(&[1, 2, 4, 8, 0, 3, 16, u32::MAX]);
                Request { data, ..Request::new(cmd::SET_CONFIG, vec![space]) }
            }
        };
        Step::Ask(who, request)
    }

    pub(super) fn about_the_daemon(&mut self) -> Step {
        let who = self.who();
        match self.dice.below(12) {
            0 => Step::Ask(who, Request::new(cmd::VERSION, Vec::new())),
            1 => {
                let data = self.dice.below(5);
                let data = u32::try_from(data).unwrap_or(0);
                Step::Ask(who, Request { data, ..Request::new(cmd::STATUS, Vec::new()) })
            }
            2 => Step::Ask(who, Request::new(cmd::LOG_DUMP, Vec::new())),
            3 => Step::Ask(who, Request::new(cmd::SHUTDOWN_WAIT, Vec::new())),
            4..6 => {
                let flags = self.dice.one_of(&[0, 0, 2, 2, 4, 4, 6, 1, 0xffff_fff0]);
                let data2 = Data2::Number(SELF);
                Step::Ask(who, Request { flags, data2, ..Request::new(cmd::RESTRICT, Vec::new()) })
            }
            6..8 => {
                let flags = self.maybe(50, flag::KILLPATH_PID);
                let (program, arguments) =
                    self.dice.one_of(&[("/bin/true", "a b"), ("", ""), ("/bin/true", "")]);
                let data2 = Data2::Number(SELF);
                let parts = vec![Part::Killpath(program, arguments)];
                Step::Ask(who, Request { flags, data2, ..Request::new(cmd::KILLPATH, parts) })
            }
            8..10 => Step::Ask(who, Request::new(cmd::EXAMINE_LOCKSPACE, vec![self.space()])),
            _ => {
                let lease = self.lease();
                Step::Ask(who, Request::new(cmd::EXAMINE_RESOURCE, vec![Part::Bare(lease)]))
            }
        }
    }
}
