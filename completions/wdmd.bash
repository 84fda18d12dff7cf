# bash completion for wdmd. Made from its help by wdmd/tests/manual.rs.

_wdmd()
{
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} at=1 where= words= i
    COMPREPLY=()
    # Names and places are joined by colons, at which the shell splits words.
    if [[ $prev == : || $cur == : ]]; then
        COMPREPLY=($(compgen -f -- "${cur#:}"))
        return
    fi
    case "$where $prev" in
    ' --trytimeout') return ;;
    ' -t') return ;;
    ' -H') COMPREPLY=($(compgen -W '0 1' -- "$cur")); return ;;
    ' -G') return ;;
    ' -S') COMPREPLY=($(compgen -W '0 1' -- "$cur")); return ;;
    ' -s') COMPREPLY=($(compgen -f -- "$cur")); return ;;
    ' -k') return ;;
    ' -w') COMPREPLY=($(compgen -f -- "$cur")); return ;;
    esac
    case $where in
    '') words='--version -V --help -h --dump -d --probe -p --trytimeout -t --forcefire -F -D -H -G -S -s -k -w' ;;
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

complete -o filenames -F _wdmd wdmd
