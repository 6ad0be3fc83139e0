// NOT RUN by any test of this project: read it as a sketch of the steps, which the other kits have tested.
//
// The key and the effect in one transaction of PostgreSQL. The key is inserted before anything else, and 2xx is answered
// only when key and effect are committed, by this copy or an earlier one.

using Npgsql;

namespace Oncebox.Receiver;

/// <summary>What became of a key. Only after Fresh have the effect. Conflict: known with other bytes; Stale: from a copy with
/// a higher fence.</summary>
public enum Applied { Fresh, Repeat, Conflict, Stale }

/// <param name="Cause">Whatever went wrong, or was out of the ordinary, for the log.</param>
public sealed record Answer(int Status, string Text, Exception? Cause = null);

/// <summary>Another transaction holds the key.</summary>
public sealed class InProgress(Exception cause) : Exception("insert", cause);

/// <summary>The commit failed, perhaps only its answer: the event is processed, or it is not.</summary>
public sealed class OutcomeUnknown(Exception cause) : Exception("commit", cause);

/// <summary>The key came with another body than the first one, which is kept. Answered 200.</summary>
public sealed class OtherBody(Event one)
    : Exception($"the key {one.Key} came with another body, of digest {one.Digest}; the first is kept");

/// <summary>The key came with a lower fence than that of the copy that was processed. Answered 200.</summary>
public sealed class LowerFence(Event one)
    : Exception($"the key {one.Key} came with fence {one.Fence}, and was processed with a higher one");

public sealed class Once(NpgsqlDataSource source, TimeSpan? lockTimeout = null)
{
    public const string Table = """
        create table if not exists processed_events (
            key text primary key,
            digest text not null,
            source text,
            fence bigint,
            received_at timestamptz not null default now());
        create index if not exists processed_events_age on processed_events (received_at);
        """;
    private const string InsertKey = """
        insert into processed_events (key, digest, source, fence) values ($1, $2, $3, $4)
        on conflict (key) do nothing
        """;
    // For this transaction alone: another one, begun after a rollback, does not have the key.
    private const string Mark = "select set_config('lock_timeout', $1, true), set_config('oncebox.key', $2, true)";
    private const string IsMarked = "select current_setting('oncebox.key', true) is not distinct from $1";
    private const string PruneOld = """
        delete from processed_events
         where key in (select key from processed_events where received_at < now() - $1
                        order by received_at limit $2)
        """;

    /// <summary>Inserts the key in the caller's transaction, and commits nothing. A concurrent copy waits here for the
    /// transaction that holds the key, at most for lock_timeout.</summary>
    public static async Task<Applied> Apply(NpgsqlTransaction transaction, Event one)
    {
        if (await Insert(transaction, one)) return Applied.Fresh;
        await using var known = Command(transaction, "select digest, fence from processed_events where key = $1", one.Key);
        await using var row = await known.ExecuteReaderAsync();
        // Pruned since the insert: it was processed, with bytes that nobody knows any more.
        if (!await row.ReadAsync()) return Applied.Repeat;
        if (row.GetString(0) != one.Digest) return Applied.Conflict;
        return !row.IsDBNull(1) && one.Fence < row.GetInt64(1) ? Applied.Stale : Applied.Repeat;
    }

    /// <summary>Forgets the oldest keys, at most so many, in the caller's transaction. Returns how many they were.</summary>
    public static async Task<int> Prune(NpgsqlTransaction transaction, TimeSpan olderThan, int atMost = 1000)
    {
        await using var prune = Command(transaction, PruneOld, olderThan, atMost);
        return await prune.ExecuteNonQueryAsync();
    }

    /// <summary>The effect runs at most once per key that is committed, in the transaction of the key.</summary>
    public Task<Answer> Process(Event one, Func<NpgsqlTransaction, Task> effect) =>
        InTransaction(one.Key, lockTimeout ?? TimeSpan.FromSeconds(2), async transaction =>
        {
            var applied = await Held(Apply(transaction, one));
            if (applied == Applied.Fresh)
            {
                await effect(transaction);
                await Commit(transaction, one.Key);
            }
            // The event is processed in each of these cases, by this copy or another: the sender need not come again.
            return applied switch
            {
                Applied.Fresh => new Answer(200, "processed\n"),
                Applied.Repeat => new Answer(200, "seen before\n"),
                Applied.Conflict =>
                    new Answer(200, "seen before with other bytes; the first are kept\n", new OtherBody(one)),
                Applied.Stale => new Answer(200, "seen before; a newer attempt was processed\n", new LowerFence(one)),
                _ => throw new InvalidOperationException(),
            };
        });

    /// <summary>For endpoint.lookup. Asks the unique index, which also knows the keys of transactions under way.</summary>
    public Task<Answer> Lookup(string key) =>
        InTransaction(key, TimeSpan.FromMilliseconds(100), async transaction =>
        {
            var isNew = await Held(Insert(transaction, new Event(key, "", null, null, null, null)));
            return isNew ? new Answer(404, "not processed\n") : new Answer(200, "processed\n");
        });

    // What is not committed is rolled back when the transaction is disposed of.
    private async Task<Answer> InTransaction(string key, TimeSpan timeout, Func<NpgsqlTransaction, Task<Answer>> act)
    {
        try
        {
            await using var connection = await source.OpenConnectionAsync();
            await using var transaction = await connection.BeginTransactionAsync();
            await using var set = Command(transaction, Mark, $"{timeout.TotalMilliseconds:F0}", key);
            await set.ExecuteNonQueryAsync();
            return await act(transaction);
        }
        catch (InProgress error)
        {
            return new Answer(409, "this key is being processed\n", error);
        }
        catch (OutcomeUnknown error)
        {
            return new Answer(500, "perhaps processed\n", error);
        }
        catch (Exception error)
        {
            return new Answer(503, "not processed\n", error);
        }
    }

    // Of inserting the key: an effect that waits too long is no copy under way.
    private static async Task<T> Held<T>(Task<T> insert)
    {
        try
        {
            return await insert;
        }
        catch (PostgresException error) when (error.SqlState == PostgresErrorCodes.LockNotAvailable)
        {
            throw new InProgress(error);
        }
    }

    private static async Task Commit(NpgsqlTransaction transaction, string key)
    {
        // Postgres answers the commit of a failed transaction without an error, and rolls back. In one this fails. One that
        // works may have been begun after the transaction of the key was rolled back.
        await using var check = Command(transaction, IsMarked, key);
        if (await check.ExecuteScalarAsync() is not true)
        {
            throw new InvalidOperationException("the effect ended the transaction, and did not say so");
        }
        try
        {
            await transaction.CommitAsync();
        }
        catch (Exception error)
        {
            throw new OutcomeUnknown(error);
        }
    }

    private static async Task<bool> Insert(NpgsqlTransaction transaction, Event one)
    {
        await using var insert = Command(transaction, InsertKey, one.Key, one.Digest, one.Source, one.Fence);
        return await insert.ExecuteNonQueryAsync() == 1;
    }

    private static NpgsqlCommand Command(NpgsqlTransaction transaction, string text, params object?[] values)
    {
        var command = new NpgsqlCommand(text, transaction.Connection, transaction);
        foreach (var value in values) command.Parameters.Add(new NpgsqlParameter { Value = value ?? DBNull.Value });
        return command;
    }
}
