//! Flags and result codes have the numbers of the specification (socket-protocol.md 4.1, 5).

use sanlock_wire::flags::*;
use sanlock_wire::{Command, StateType, code};

#[test]
fn every_flag_has_the_value_of_the_specification() {
    // All bits of a group, lowest first, by name.
    fn names<F: bitflags::Flags<Bits = u32>>() -> Vec<(&'static str, u32)> {
        F::FLAGS.iter().map(|flag| (flag.name(), flag.value().bits())).collect()
    }
    const SIZES: [(&str, u32); 6] = [
        ("ALIGN1M", 0x10),
        ("ALIGN2M", 0x20),
        ("ALIGN4M", 0x40),
        ("ALIGN8M", 0x80),
        ("SECTOR512", 0x100),
        ("SECTOR4K", 0x200),
    ];
    let with_sizes = |own: &[(&'static str, u32)]| [own, &SIZES[..]].concat();
    assert_eq!(
        names::<ResourceFlags>(),
        with_sizes(&[("LVER", 0x1), ("NUM_HOSTS", 0x2), ("SHARED", 0x4), ("PERSISTENT", 0x8)])
    );
    assert_eq!(names::<LockspaceFlags>(), with_sizes(&[("ADD", 0x1), ("REM", 0x2)]));
    assert_eq!(names::<RindexFlags>(), with_sizes(&[]));
    assert_eq!(names::<AddFlags>(), [("ASYNC", 0x1)]);
    assert_eq!(names::<RemFlags>(), [("ASYNC", 0x1), ("UNUSED", 0x2)]);
    assert_eq!(names::<InqFlags>(), [("WAIT", 0x1)]);
    assert_eq!(names::<WriteFlags>(), [("CLEAR", 0x1)]);
    assert_eq!(names::<RestrictFlags>(), [("ALL", 0x1), ("SIGKILL", 0x2), ("SIGTERM", 0x4)]);
    assert_eq!(names::<KillpathFlags>(), [("PID", 0x1)]);
    assert_eq!(
        names::<AcquireFlags>(),
        [("LVB", 0x1), ("ORPHAN", 0x2), ("ORPHAN_ONLY", 0x4), ("OWNER_NOWAIT", 0x8)]
    );
    assert_eq!(names::<ReleaseFlags>(), [("ALL", 0x1), ("RENAME", 0x2), ("ORPHAN", 0x4)]);
    assert_eq!(names::<ConvertFlags>(), [("OWNER_NOWAIT", 0x8)]);
    assert_eq!(names::<RequestFlags>(), [("NEXT_LVER", 0x1)]);
    assert_eq!(
        names::<SetEventFlags>(),
        [
            ("CUR_GENERATION", 0x1),
            ("CLEAR_HOSTID", 0x2),
            ("CLEAR_EVENT", 0x4),
            ("REPLACE_EVENT", 0x8),
            ("ALL_HOSTS", 0x10),
        ]
    );
    assert_eq!(
        names::<RindexCmdFlags>(),
        [("NO_LOCKSPACE", 0x1), ("UPDATE_ADD", 0x10000), ("UPDATE_REM", 0x20000)]
    );
    assert_eq!(names::<TestResourceFlags>(), [("FAIL", 0x1)]);
    let configs: Vec<u32> = (0..20).filter(|number| ConfigCommand::from_number(*number).is_some()).collect();
    assert_eq!(configs, [1, 2, 4, 8]);
    assert_eq!((ForceMode::Force as u32, ForceMode::Graceful as u32), (1, 2));
    let states = [HostState::Unknown, HostState::Free, HostState::Live, HostState::Fail, HostState::Dead];
    assert_eq!(states.map(|state| state as u32), [1, 2, 3, 4, 5]);
    assert_eq!(HOST_STATE_MASK, 0xf);
}

#[test]
fn every_result_code_has_the_number_of_the_specification() {
    const CODES: &str = "-201 ERROR -202 AIO_TIMEOUT -203 WD_ERROR -210 DBLOCK_READ -211 DBLOCK_WRITE \
        -212 DBLOCK_LVER -213 DBLOCK_MBAL -214 DBLOCK_CHECKSUM -220 LEADER_READ -221 LEADER_WRITE -222 LEADER_DIFF \
        -223 LEADER_MAGIC -224 LEADER_VERSION -225 LEADER_SECTORSIZE -226 LEADER_LOCKSPACE -227 LEADER_RESOURCE \
        -228 LEADER_NUMHOSTS -229 LEADER_CHECKSUM -230 ADDLS_SIZES -231 ADDLS_INVALID_HOSTID -240 ACQUIRE_LVER \
        -241 ACQUIRE_LOCKSPACE -242 ACQUIRE_IDDISK -243 ACQUIRE_IDLIVE -244 ACQUIRE_OWNED -245 ACQUIRE_OTHER \
        -246 ACQUIRE_SHRETRY -247 ACQUIRE_OWNED_RETRY -250 RELEASE_LVER -251 RELEASE_OWNER -260 RENEW_OWNER \
        -261 RENEW_DIFF -262 HOSTID_BUSY -270 REQUEST_MAGIC -271 REQUEST_VERSION -272 REQUEST_OLD -273 REQUEST_LVER \
        -274 RINDEX_MAGIC -275 RINDEX_VERSION -276 RINDEX_LOCKSPACE -277 RINDEX_OFFSET -278 RINDEX_DIFF";
    const ERRNOS: &str = "2 ENOENT 3 ESRCH 5 EIO 7 E2BIG 11 EAGAIN 12 ENOMEM 13 EACCES 16 EBUSY 17 EEXIST 19 ENODEV \
        22 EINVAL 25 ENOTTY 28 ENOSPC 34 ERANGE 50 ENOCSI 79 ELIBACC 80 ELIBBAD 81 ELIBSCN 90 EMSGSIZE 95 EOPNOTSUPP \
        107 ENOTCONN 114 EALREADY 115 EINPROGRESS 116 ESTALE 117 EUCLEAN";
    let words: Vec<&str> = CODES.split_whitespace().collect();
    assert_eq!(words.len(), 2 * 42);
    for pair in words.chunks(2) {
        let expected = format!("SANLK_{}", pair[1]);
        assert_eq!(code::name(pair[0].parse().unwrap()), Some(expected.as_str()));
    }
    for pair in ERRNOS.split_whitespace().collect::<Vec<_>>().chunks(2) {
        let number: i32 = pair[0].parse().unwrap();
        assert_eq!(code::name(-number), Some(pair[1]));
    }
    assert_eq!((code::SANLK_ACQUIRE_IDLIVE, code::ENOTCONN, code::EOPNOTSUPP), (-243, -107, -95));
}

/// Socket-protocol.md 5: an errno is answered negated.
#[test]
fn every_errno_is_the_negated_number_of_the_system() {
    let pairs = [
        (code::ENOENT, libc::ENOENT),
        (code::ESRCH, libc::ESRCH),
        (code::EIO, libc::EIO),
        (code::ENXIO, libc::ENXIO),
        (code::E2BIG, libc::E2BIG),
        (code::EAGAIN, libc::EAGAIN),
        (code::ENOMEM, libc::ENOMEM),
        (code::EACCES, libc::EACCES),
        (code::EBUSY, libc::EBUSY),
        (code::EEXIST, libc::EEXIST),
        (code::ENODEV, libc::ENODEV),
        (code::EINVAL, libc::EINVAL),
        (code::ENOTTY, libc::ENOTTY),
        (code::ENOSPC, libc::ENOSPC),
        (code::EPIPE, libc::EPIPE),
        (code::ERANGE, libc::ERANGE),
        (code::ENOCSI, libc::ENOCSI),
        (code::ELIBACC, libc::ELIBACC),
        (code::ELIBBAD, libc::ELIBBAD),
        (code::ELIBSCN, libc::ELIBSCN),
        (code::EMSGSIZE, libc::EMSGSIZE),
        (code::EOPNOTSUPP, libc::EOPNOTSUPP),
        (code::ECONNRESET, libc::ECONNRESET),
        (code::ENOTCONN, libc::ENOTCONN),
        (code::ECONNREFUSED, libc::ECONNREFUSED),
        (code::EALREADY, libc::EALREADY),
        (code::EINPROGRESS, libc::EINPROGRESS),
        (code::ESTALE, libc::ESTALE),
        (code::EUCLEAN, libc::EUCLEAN),
    ];
    for (code, errno) in pairs {
        assert_eq!(code, -errno);
    }
}

/// Socket-protocol.md 5, "5.1.1 adds".
#[test]
fn the_codes_that_only_5_1_1_has() {
    let codes = [
        code::SANLK_WRONG_GENERATION,
        code::SANLK_WRONG_CAW,
        code::SANLK_CAW_CONFIG,
        code::SANLK_CAW_OPEN,
        code::SANLK_CAW_IOCTL,
        code::SANLK_CAW_MISCOMPARE,
        code::SANLK_CAW_ERROR,
        code::SANLK_IOTYPE,
        code::SANLK_CAW_ILLEGAL,
    ];
    assert_eq!(codes.to_vec(), (280..=288).map(|number: i32| -number).collect::<Vec<_>>());
}

/// The left column of the table in socket-protocol.md 2.3, without REG_EVENT, which closes on failure only.
#[test]
fn the_commands_that_end_a_plain_connection() {
    let mut closing: Vec<&str> =
        Command::ALL.iter().filter(|command| command.closes_plain_connection()).map(|c| c.name()).collect();
    let table = "SHUTDOWN STATUS LOG_DUMP HOST_STATUS RENEWAL GET_LOCKSPACES GET_HOSTS END_EVENT SET_CONFIG";
    let mut expected: Vec<&str> = table.split(' ').collect();
    closing.sort_unstable();
    expected.sort_unstable();
    assert_eq!(closing, expected);
}

/// Socket-protocol.md 2.6.
#[test]
fn the_commands_whose_data2_names_a_process() {
    let targeted: Vec<&str> =
        Command::ALL.iter().filter(|command| command.is_targeted()).map(|c| c.name()).collect();
    assert_eq!(targeted, ["ACQUIRE", "RELEASE", "INQUIRE", "KILLPATH", "CONVERT"]);
}

/// Socket-protocol.md 4.4: the low four bits of a host's flags; the others say nothing of its state.
#[test]
fn the_state_of_a_host_stands_in_four_bits() {
    let words = [None, Some("UNKNOWN"), Some("FREE"), Some("LIVE"), Some("FAIL"), Some("DEAD")];
    for flags in 0..0x40_u32 {
        let expected = words.get((flags & 0xf) as usize).copied().flatten();
        assert_eq!(HostState::from_flags(flags).map(HostState::name), expected, "{flags:#x}");
    }
    assert_eq!(HostState::from_flags(0xffff_fff3), Some(HostState::Live));
}

#[test]
fn numbers_of_types_and_configurations_are_kept() {
    for number in [1, 2, 4, 8] {
        assert_eq!(ConfigCommand::from_number(number).map(u32::from), Some(number));
    }
    let types: Vec<Option<u32>> = (0..9).map(|n| StateType::from_number(n).map(|kind| kind as u32)).collect();
    assert_eq!(types, [None, Some(1), Some(2), Some(3), Some(4), Some(5), Some(6), None, None]);
}

/// What people read of a failure, all of it: one line for each number, with the commands for which it means something else below it,
/// and what to do next.
#[test]
fn every_explanation_is_the_reviewed_one() {
    let mut text = String::new();
    for number in (-300..=1).rev() {
        let general = (code::explain(number, None), code::next_step(number, None));
        if let (Some(explanation), step) = general {
            text += &format!("{number} {explanation}; {}\n", step.unwrap_or("-"));
        }
        for command in Command::ALL {
            let specific = (code::explain(number, Some(*command)), code::next_step(number, Some(*command)));
            if specific != general {
                let (explanation, step) = (specific.0.unwrap_or("-"), specific.1.unwrap_or("-"));
                text += &format!("{number} {}: {explanation}; {step}\n", command.name());
            }
        }
    }
    let reviewed = include_str!("explanations.txt");
    let differs = text.lines().zip(reviewed.lines()).find(|(now, reviewed)| now != reviewed);
    assert_eq!(differs, None, "explanations.txt has to say:\n{text}");
    assert_eq!(text.lines().count(), reviewed.lines().count(), "explanations.txt has to say:\n{text}");
}
