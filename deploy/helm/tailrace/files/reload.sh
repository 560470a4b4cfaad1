# Runs `tailrace reload` when a file has changed. $1: seconds between two looks; then the directories.
# A refused reload is tried again only if that may help (1), or after the next change (2).
trap 'exit 0' TERM INT
seconds=$1
shift
sum() { find -L "$@" -type f ! -path '*/..*' -exec cat {} + 2>/dev/null | cksum; }
known=$(sum "$@")
while :; do
  sleep "$seconds" &
  wait $!
  now=$(sum "$@")
  if [ "$now" != "$known" ]; then
    tailrace reload
    [ $? -eq 1 ] || known=$now
  fi
done
