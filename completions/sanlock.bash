# bash completion for sanlock. Made from its help and manual by tests/manual.rs.

_sanlock()
{
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} at=1 where= words= i
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        COMPREPLY=($(compgen -W 'daemon client direct who top explain check fsck exporter demo help version status gets host_status renewal log_dump shutdown init read align add_lockspace inq_lockspace rem_lockspace command acquire convert release inquire set_config request examine set_event format create delete lookup update rebuild' -- "$cur"))
        return
    fi
    where=${COMP_WORDS[1]} at=2
    case $where in
    client)
        if ((COMP_CWORD == 2)); then
            COMPREPLY=($(compgen -W 'status gets host_status renewal log_dump shutdown init read align add_lockspace inq_lockspace rem_lockspace command acquire convert release inquire set_config request examine set_event version format create delete lookup update rebuild' -- "$cur"))
            return
        fi
        where="client ${COMP_WORDS[2]}" at=3
        ;;
    direct)
        if ((COMP_CWORD == 2)); then
            COMPREPLY=($(compgen -W 'init read_leader read write_leader acquire release acquire_id renew_id release_id dump next_free format lookup update rebuild' -- "$cur"))
            return
        fi
        where="direct ${COMP_WORDS[2]}" at=3
        ;;
    daemon|who|top|explain|check|fsck|exporter|demo|help|version) ;;
    *) where="client $where" ;;
    esac
    # Names and places are joined by colons, at which the shell splits words.
    if [[ $prev == : || $cur == : ]]; then
        COMPREPLY=($(compgen -f -- "${cur#:}"))
        return
    fi
    case "$where $prev" in
    'daemon -Q') COMPREPLY=($(compgen -W '0 1' -- "$cur")); return ;;
    'daemon -R') COMPREPLY=($(compgen -W '0 1' -- "$cur")); return ;;
    'daemon -H') return ;;
    'daemon -L') return ;;
    'daemon -S') return ;;
    'daemon -U') COMPREPLY=($(compgen -u -- "$cur")); return ;;
    'daemon -G') COMPREPLY=($(compgen -g -- "$cur")); return ;;
    'daemon -t') return ;;
    'daemon -g') return ;;
    'daemon -w') COMPREPLY=($(compgen -W '0 1' -- "$cur")); return ;;
    'daemon -h') COMPREPLY=($(compgen -W '0 1' -- "$cur")); return ;;
    'daemon -l') COMPREPLY=($(compgen -W '0 1 2' -- "$cur")); return ;;
    'daemon -a') COMPREPLY=($(compgen -W '0 1' -- "$cur")); return ;;
    'daemon -b') return ;;
    'daemon -e') return ;;
    'who -s') COMPREPLY=($(compgen -f -- "$cur")); return ;;
    'who --watch') return ;;
    'top --interval') return ;;
    'top --sort') COMPREPLY=($(compgen -W 'name left latency' -- "$cur")); return ;;
    'check --seconds') return ;;
    'check --io-timeout') return ;;
    'check --sysroot') COMPREPLY=($(compgen -f -- "$cur")); return ;;
    'fsck --lockspace') COMPREPLY=($(compgen -f -- "$cur")); return ;;
    'fsck --save') COMPREPLY=($(compgen -f -- "$cur")); return ;;
    'fsck --io-timeout') return ;;
    'fsck --fire-timeout') return ;;
    'exporter --listen') return ;;
    'exporter --textfile') COMPREPLY=($(compgen -f -- "$cur")); return ;;
    'exporter --interval') return ;;
    'exporter --timeout') return ;;
    'demo --dir') COMPREPLY=($(compgen -f -- "$cur")); return ;;
    'demo --device') COMPREPLY=($(compgen -f -- "$cur")); return ;;
    'client status -o') COMPREPLY=($(compgen -W 'p s' -- "$cur")); return ;;
    'client gets -h') COMPREPLY=($(compgen -W '0 1' -- "$cur")); return ;;
    'client host_status -s') COMPREPLY=($(compgen -f -- "$cur")); return ;;
    'client renewal -s') COMPREPLY=($(compgen -f -- "$cur")); return ;;
    'client renewal --plot') COMPREPLY=($(compgen -f -- "$cur")); return ;;
    'client shutdown -f') COMPREPLY=($(compgen -W '0 1' -- "$cur")); return ;;
    'client shutdown -w') COMPREPLY=($(compgen -W '0 1' -- "$cur")); return ;;
    'client init -s') COMPREPLY=($(compgen -f -- "$cur")); return ;;
    'client init -o') return ;;
    'client init -Z') COMPREPLY=($(compgen -W '512 4096' -- "$cur")); return ;;
    'client init -A') COMPREPLY=($(compgen -W '1M 2M 4M 8M' -- "$cur")); return ;;
    'client init -r') COMPREPLY=($(compgen -f -- "$cur")); return ;;
    'client init -n') return ;;
    'client init -z') COMPREPLY=($(compgen -W '0 1' -- "$cur")); return ;;
    'client read -s') COMPREPLY=($(compgen -f -- "$cur")); return ;;
    'client read -r') COMPREPLY=($(compgen -f -- "$cur")); return ;;
    'client read -h') COMPREPLY=($(compgen -W '0 1' -- "$cur")); return ;;
    'client align -s') COMPREPLY=($(compgen -f -- "$cur")); return ;;
    'client add_lockspace -s') COMPREPLY=($(compgen -f -- "$cur")); return ;;
    'client add_lockspace -o') return ;;
    'client inq_lockspace -s') COMPREPLY=($(compgen -f -- "$cur")); return ;;
    'client rem_lockspace -s') COMPREPLY=($(compgen -f -- "$cur")); return ;;
    'client command -r') COMPREPLY=($(compgen -f -- "$cur")); return ;;
    'client command -O') COMPREPLY=($(compgen -W '0 1' -- "$cur")); return ;;
    'client command -P') COMPREPLY=($(compgen -W '0 1' -- "$cur")); return ;;
    'client command -n') return ;;
    'client command -c') COMPREPLY=($(compgen -f -- "$cur")); return ;;
    'client acquire -r') COMPREPLY=($(compgen -f -- "$cur")); return ;;
    'client acquire -p') COMPREPLY=($(compgen -W "$(ps -eo pid= 2>/dev/null)" -- "$cur")); return ;;
    'client acquire -O') COMPREPLY=($(compgen -W '0 1' -- "$cur")); return ;;
    'client acquire -P') COMPREPLY=($(compgen -W '0 1' -- "$cur")); return ;;
    'client acquire -n') return ;;
    'client convert -r') COMPREPLY=($(compgen -f -- "$cur")); return ;;
    'client convert -p') COMPREPLY=($(compgen -W "$(ps -eo pid= 2>/dev/null)" -- "$cur")); return ;;
    'client release -r') COMPREPLY=($(compgen -f -- "$cur")); return ;;
    'client release -p') COMPREPLY=($(compgen -W "$(ps -eo pid= 2>/dev/null)" -- "$cur")); return ;;
    'client release -s') COMPREPLY=($(compgen -f -- "$cur")); return ;;
    'client release -a') COMPREPLY=($(compgen -W '0 1' -- "$cur")); return ;;
    'client release -O') COMPREPLY=($(compgen -W '0 1' -- "$cur")); return ;;
    'client inquire -p') COMPREPLY=($(compgen -W "$(ps -eo pid= 2>/dev/null)" -- "$cur")); return ;;
    'client set_config -s') COMPREPLY=($(compgen -f -- "$cur")); return ;;
    'client set_config -u') COMPREPLY=($(compgen -W '0 1' -- "$cur")); return ;;
    'client set_config -O') COMPREPLY=($(compgen -W '0 1' -- "$cur")); return ;;
    'client request -r') COMPREPLY=($(compgen -f -- "$cur")); return ;;
    'client request -f') COMPREPLY=($(compgen -W '0 1 2' -- "$cur")); return ;;
    'client examine -s') COMPREPLY=($(compgen -f -- "$cur")); return ;;
    'client examine -r') COMPREPLY=($(compgen -f -- "$cur")); return ;;
    'client set_event -s') COMPREPLY=($(compgen -f -- "$cur")); return ;;
    'client set_event -i') return ;;
    'client set_event -g') return ;;
    'client set_event -e') return ;;
    'client set_event -d') return ;;
    'client format -x') COMPREPLY=($(compgen -f -- "$cur")); return ;;
    'client format -Z') COMPREPLY=($(compgen -W '512 4096' -- "$cur")); return ;;
    'client format -A') COMPREPLY=($(compgen -W '1M 2M 4M 8M' -- "$cur")); return ;;
    'client create -x') COMPREPLY=($(compgen -f -- "$cur")); return ;;
    'client create -e') return ;;
    'client create -n') return ;;
    'client delete -x') COMPREPLY=($(compgen -f -- "$cur")); return ;;
    'client delete -e') return ;;
    'client lookup -x') COMPREPLY=($(compgen -f -- "$cur")); return ;;
    'client lookup -e') return ;;
    'client update -x') COMPREPLY=($(compgen -f -- "$cur")); return ;;
    'client update -e') return ;;
    'client update -z') return ;;
    'client rebuild -x') COMPREPLY=($(compgen -f -- "$cur")); return ;;
    'direct init -s') COMPREPLY=($(compgen -f -- "$cur")); return ;;
    'direct init -o') return ;;
    'direct init -Z') COMPREPLY=($(compgen -W '512 4096' -- "$cur")); return ;;
    'direct init -A') COMPREPLY=($(compgen -W '1M 2M 4M 8M' -- "$cur")); return ;;
    'direct init -r') COMPREPLY=($(compgen -f -- "$cur")); return ;;
    'direct init -n') return ;;
    'direct init -z') COMPREPLY=($(compgen -W '0 1' -- "$cur")); return ;;
    'direct read_leader -s') COMPREPLY=($(compgen -f -- "$cur")); return ;;
    'direct read_leader -r') COMPREPLY=($(compgen -f -- "$cur")); return ;;
    'direct read -s') COMPREPLY=($(compgen -f -- "$cur")); return ;;
    'direct read -r') COMPREPLY=($(compgen -f -- "$cur")); return ;;
    'direct write_leader -s') COMPREPLY=($(compgen -f -- "$cur")); return ;;
    'direct write_leader -r') COMPREPLY=($(compgen -f -- "$cur")); return ;;
    'direct write_leader -F') COMPREPLY=($(compgen -f -- "$cur")); return ;;
    'direct write_leader -f') COMPREPLY=($(compgen -W '0 1' -- "$cur")); return ;;
    'direct acquire -r') COMPREPLY=($(compgen -f -- "$cur")); return ;;
    'direct acquire -i') return ;;
    'direct acquire -g') return ;;
    'direct acquire -o') return ;;
    'direct release -r') COMPREPLY=($(compgen -f -- "$cur")); return ;;
    'direct release -i') return ;;
    'direct release -g') return ;;
    'direct release -o') return ;;
    'direct acquire_id -s') COMPREPLY=($(compgen -f -- "$cur")); return ;;
    'direct acquire_id -e') return ;;
    'direct acquire_id -o') return ;;
    'direct renew_id -s') COMPREPLY=($(compgen -f -- "$cur")); return ;;
    'direct renew_id -o') return ;;
    'direct release_id -s') COMPREPLY=($(compgen -f -- "$cur")); return ;;
    'direct release_id -o') return ;;
    'direct dump -f') COMPREPLY=($(compgen -W '1 2' -- "$cur")); return ;;
    'direct dump -Z') COMPREPLY=($(compgen -W '512 4096' -- "$cur")); return ;;
    'direct dump -A') COMPREPLY=($(compgen -W '1M 2M 4M 8M' -- "$cur")); return ;;
    'direct next_free -Z') COMPREPLY=($(compgen -W '512 4096' -- "$cur")); return ;;
    'direct next_free -A') COMPREPLY=($(compgen -W '1M 2M 4M 8M' -- "$cur")); return ;;
    'direct format -x') COMPREPLY=($(compgen -f -- "$cur")); return ;;
    'direct format -Z') COMPREPLY=($(compgen -W '512 4096' -- "$cur")); return ;;
    'direct format -A') COMPREPLY=($(compgen -W '1M 2M 4M 8M' -- "$cur")); return ;;
    'direct lookup -x') COMPREPLY=($(compgen -f -- "$cur")); return ;;
    'direct lookup -e') return ;;
    'direct update -x') COMPREPLY=($(compgen -f -- "$cur")); return ;;
    'direct update -e') return ;;
    'direct update -z') return ;;
    'direct rebuild -x') COMPREPLY=($(compgen -f -- "$cur")); return ;;
    esac
    case $where in
    'daemon') words='-D -Q -R -H -L -S -U -G -t -g -w -h -l -a -b -e' ;;
    'client') words='' ;;
    'direct') words='' ;;
    'who') words='-s --watch --json'; [[ $cur == -* ]] || COMPREPLY=($(compgen -f -- "$cur")) ;;
    'top') words='--interval --sort --once' ;;
    'explain') words='' ;;
    'check') words='--seconds --io-timeout --sysroot --json'; [[ $cur == -* ]] || COMPREPLY=($(compgen -f -- "$cur")) ;;
    'fsck') words='--lockspace --repair --save --no-wait --io-timeout --fire-timeout --json'; [[ $cur == -* ]] || COMPREPLY=($(compgen -f -- "$cur")) ;;
    'exporter') words='--listen --textfile --interval --timeout --once' ;;
    'demo') words='--dir --quick --device --yes-overwrite' ;;
    'help') words='' ;;
    'version') words='' ;;
    'client status') words='-D -o --json' ;;
    'client gets') words='-h --json' ;;
    'client host_status') words='-s -D --json' ;;
    'client renewal') words='-s --json --plot' ;;
    'client log_dump') words='' ;;
    'client shutdown') words='-f -w --progress' ;;
    'client init') words='-s -o -Z -A --progress -r -n -z' ;;
    'client read') words='-s -r -h -D --json' ;;
    'client align') words='-s' ;;
    'client add_lockspace') words='-s -o --progress' ;;
    'client inq_lockspace') words='-s' ;;
    'client rem_lockspace') words='-s --progress' ;;
    'client command') words='-r -O -P -n --progress -c' ;;
    'client acquire') words='-r -p -O -P -n --progress' ;;
    'client convert') words='-r -p' ;;
    'client release') words='-r -p -s -a -O' ;;
    'client inquire') words='-p -D --json' ;;
    'client set_config') words='-s -u -O' ;;
    'client request') words='-r -f' ;;
    'client examine') words='-s -r' ;;
    'client set_event') words='-s -i -g -e -d' ;;
    'client version') words='' ;;
    'client format') words='-x -Z -A' ;;
    'client create') words='-x -e -n' ;;
    'client delete') words='-x -e' ;;
    'client lookup') words='-x -e' ;;
    'client update') words='-x -e -z' ;;
    'client rebuild') words='-x' ;;
    'direct init') words='-s -o -Z -A --progress -r -n -z' ;;
    'direct read_leader') words='-s -r --json' ;;
    'direct read') words='-s -r --json' ;;
    'direct write_leader') words='-s -r -F -f' ;;
    'direct acquire') words='-r -i -g -o --progress' ;;
    'direct release') words='-r -i -g -o' ;;
    'direct acquire_id') words='-s -e -o --progress' ;;
    'direct renew_id') words='-s -o' ;;
    'direct release_id') words='-s -o' ;;
    'direct dump') words='-f -Z -A --json'; [[ $cur == -* ]] || COMPREPLY=($(compgen -f -- "$cur")) ;;
    'direct next_free') words='-Z -A'; [[ $cur == -* ]] || COMPREPLY=($(compgen -f -- "$cur")) ;;
    'direct format') words='-x -Z -A' ;;
    'direct lookup') words='-x -e' ;;
    'direct update') words='-x -e -z' ;;
    'direct rebuild') words='-x' ;;
    esac
    # What follows -c is another command's.
    for ((i = at; i < COMP_CWORD; i++)); do
        if [[ ${COMP_WORDS[i]} == -c && " $words " == *' -c '* ]]; then
            COMPREPLY=($(compgen -f -- "$cur"))
            return
        fi
    done
    COMPREPLY+=($(compgen -W "$words" -- "$cur"))
}

complete -o filenames -F _sanlock sanlock
