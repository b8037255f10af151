# What the tests need to find, installed if it is missing; to be sourced in the
# repository's root.
TRAINCHECK_TEST_PYTHON=$(tools/setup.sh | tail -n 1)
TRAINCHECK_TEST_ENV_HASH=$(basename "$(dirname "$(dirname "$TRAINCHECK_TEST_PYTHON")")")
export TRAINCHECK_TEST_PYTHON TRAINCHECK_TEST_ENV_HASH
if [ -d ../shared/oracles ]; then
  TRAINCHECK_ORACLES=$(cd ../shared/oracles && pwd)
  export TRAINCHECK_ORACLES
fi
