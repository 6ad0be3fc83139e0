#!/usr/bin/env bash
# Switches seeded bugs on, one at a time, and runs the smallest part of the tests that must catch each. One build.
# The last line is `mutants: caught=N of=N`; a mutant that survives means that a test is missing.
set -uo pipefail
cd "$(dirname "$0")/.."
source target/dev/env
out=target/mutants.log
: >"$out"

# mutant | test target | filter
mutants=(
  "no-compare-and-swap|it|a_reader_that_lost_its_cursor_stores_nothing"
  "no-owner-epoch|it|a_reader_that_lost_its_cursor_stores_nothing"
  "rows-apart-from-cursor|it|a_reader_that_lost_its_cursor_stores_nothing"
  "failed-commit-taken-for-made|it|a_commit_that_fails_with_nothing_after_it_is_made_again"
  "topic-by-name|it|a_topic_created_again_with_a_longer_log_halts"
  "lost-offsets-ignored|it|retention_past_the_cursor_halts_and_an_operator_ends_the_halt"
  "new-partition-at-end|it|a_partition_added_under_load_is_read_from_its_beginning"
  "client-comes-back|it|a_reader_that_leaves_while_the_group_is_rebalancing_reads_on_when_it_is_back"
  "shut-lanes-open|it|a_dead_letter_holds_up_its_own_key_until_it_is_replayed"
  "each-process-has-all|it|three_processes_make_one_request_at_a_time"
  "newcomers-do-not-wait|it|a_newcomer_waits_for_what_is_under_way"
  "promises-mixed|it|one_that_comes_back_with_another_guarantee_stops_both_until_it_is_resolved"
  "rate-ignored|it|all_processes_together_keep_to_the_rate"
  "dead-letters-flood|it|more_dead_letters_than_the_limit_suspend"
  "random-key|keys|"
  "key-without-workflow|keys|"
  "key-without-partition|keys|"
  "late-failure-of-a-first-attempt|it|a_failure_under_a_lost_right_changes_nothing"
  "late-failure-of-a-retry|it|a_failure_under_a_lost_right_changes_nothing"
  "park-under-any-fence|it|nobody_parks_an_event_under_a_lost_right"
  "late-answers-leave-held-events|it|an_event_that_is_held_and_then_answered_is_held_no_more"
  "stored-behind-what-a-failover-lost|it|nothing_is_stored_behind_what_a_failover_may_have_lost"
  "failures-of-what-a-failover-lost|it|a_failure_of_what_a_failover_lost_is_not_in_the_way_of_what_is_stored_anew"
  "deaths-of-what-a-failover-lost|it|a_death_of_what_a_failover_lost_takes_nothing_from_what_is_stored_anew"
  "ends-under-the-senders-day|it|what_is_stored_anew_after_midnight_ends_under_its_own_day"
  "lost-rights-are-not-noticed|it|a_failover_that_loses_nothing_puts_only_what_was_under_way_in_doubt"
  "late-answer-frees-the-lane|it|a_late_answer_leaves_the_lane_to_the_attempt_that_holds_it"
  "removed-work-forgotten|it|what_is_left_of_a_removed_workflow_is_drained_with_its_last_configuration"
  "done-twice|it|a_late_delivery_counts_once_and_an_end_never_changes"
  "clashes-ignored|it|a_first_delivery_that_is_written_down_again_counts_once"
  "ends-under-any-epoch|it|an_end_that_waited_for_a_take_over_is_not_written_under_the_old_epoch"
  "ends-by-any-owner|it|an_answer_is_late_however_its_delivery_was_lost"
  "ends-past-the-lease|it|an_answer_is_late_however_its_delivery_was_lost"
  "lost-deliveries-uncounted|it|one_lost_delivery_in_a_batch_costs_the_others_nothing"
  "no-check-before-sending|it|a_retry_whose_lease_ran_out_before_it_was_sent_is_not_sent"
  "lease-shorter-than-timeout|it|each_kind_of_mistake_is_named_with_its_position_and_what_is_allowed"
  "released-before-settled|lib|a_release_gives_back_whole_records_that_were_never_sent"
  "settled-past-open-events|lib|settled_to_never_passes_an_unsettled_event"
  "redirects-are-deliveries|lib|only_2xx_is_delivered_and_redirects_are_failures"
  "keys-not-locked|it|of_two_transactions_with_one_key_the_second_waits_for_the_first"
  "replaced-while-sent|it|one_that_is_being_sent_is_waited_for_and_never_recalled"
  "hidden-retry|it|every_answer_means_what_the_table_says"
  "dead-letters-dropped|it|records_that_cannot_be_read_become_dead_letters_and_the_rest_flows_on"
  "nothing-rescued|it|a_kill_after_the_receiver_accepted_loses_and_doubles_nothing"
  "doubt-is-sent-again|it|a_kill_between_claim_and_answer_never_makes_a_second_request"
  "marked-after-sending|it|a_kill_between_claim_and_answer_never_makes_a_second_request"
  "split-records-given-back|it|a_record_that_was_split_up_without_an_answer_is_not_sent_as_a_whole_too"
  "repeats-not-suppressed|it|a_repeat_within_one_batch_is_suppressed_too"
  "retries-starve|lib|first_attempts_and_retries_both_get_their_share_when_slots_come_free_one_by_one"
  "spill-under-any-epoch|it|a_direct_failure_is_stored_once_and_only_by_the_partitions_owner"
  "marks-of-any-era|it|a_mark_is_believed_only_of_its_own_era_and_on_a_database_that_kept_all"
  "copies-after-a-failover|it|a_mark_is_believed_only_of_its_own_era_and_on_a_database_that_kept_all"
  "mark-past-open-events|lib|the_mark_never_passes_an_open_event"
  "holes-are-passed|lib|a_batch_that_leaves_a_hole_is_not_passed_over"
  "late-claim-moves-the-range|lib|a_claim_that_comes_back_after_the_release_moves_nothing"
  "lanes-ignored|lib|the_next_of_a_lane_starts_when_the_one_before_is_over"
  "circuit-never-opens|it|an_endpoint_that_is_down_opens_the_circuit_and_floods_nothing"
  "active-keys-replayed|it|a_replay_is_refused_while_its_key_is_under_way"
  "replays-uncounted|it|what_cannot_be_replayed_stays_and_is_counted"
  "stuck-events-overlooked|it|a_row_that_was_deleted_by_hand_is_found_and_named"
  "missing-letters-overlooked|it|a_row_that_was_deleted_by_hand_is_found_and_named"
  "tokens-ignored|it|without_a_known_token_nothing_can_be_read_or_changed"
  "readers-may-change|it|without_a_known_token_nothing_can_be_read_or_changed"
  "no-timeline|chaos|"
)

# ONLY=pattern runs some of them.
if [ -n "${ONLY:-}" ]; then mapfile -t mutants < <(printf '%s\n' "${mutants[@]}" | grep -E "$ONLY"); fi

run() { # mutant, target, filters
  local mutant=$1 target=$2
  shift 2
  if [ "$target" = chaos ]; then
    ONCEBOX_MUTANT=$mutant target/debug/oncebox-proof chaos --short --seed 1 --out target/mutant-chaos
  elif [ "$target" = lib ]; then
    ONCEBOX_MUTANT=$mutant cargo test --quiet --features failpoints,mutants --lib -- "$@"
  else
    ONCEBOX_MUTANT=$mutant cargo test --quiet --features failpoints,mutants --test "$target" -- "$@"
  fi >>"$out" 2>&1
}

cargo build --quiet --workspace --features failpoints,mutants || exit 1
cargo test --quiet --no-run --features failpoints,mutants >>"$out" 2>&1 || exit 1
# A mistake whose statement has changed since would change nothing, and seem to survive.
if ! cargo test --quiet --features failpoints,mutants --lib -- every_mistake_finds_its_statement >>"$out" 2>&1; then
  echo "mutants: a mistake finds no statement; see $out"
  exit 1
fi
# Every part passes without a mutant; otherwise failing proves nothing.
for target in $(printf '%s\n' "${mutants[@]}" | cut -d'|' -f2 | sort -u); do
  mapfile -t filters < <(printf '%s\n' "${mutants[@]}" | grep -F "|$target|" | cut -d'|' -f3 | sort -u)
  if ! run none "$target" "${filters[@]}"; then
    echo "mutants: $target fails without any mutant; see $out"
    exit 1
  fi
done

caught=0
for line in "${mutants[@]}"; do
  IFS='|' read -r name target filter <<<"$line"
  if run "$name" "$target" "$filter"; then
    echo "survived  $name"
  else
    echo "caught    $name   by $target ${filter:-(all)}"
    caught=$((caught + 1))
  fi
done
rm -rf target/mutant-chaos
echo "mutants: caught=$caught of=${#mutants[@]}"
[ "$caught" = "${#mutants[@]}" ]
