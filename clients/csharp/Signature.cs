// NOT RUN by any test of this project: read it as a sketch of the steps, which the other kits have tested.
//
// Signatures as Standard Webhooks has them: HMAC-SHA256 over `webhook-id.webhook-timestamp.body`, the bytes as they came.
// One signature that was made with one of the secrets is enough, and comparing takes the same time whatever it finds.

using System.Security.Cryptography;
using System.Text;

namespace Oncebox.Receiver;

public enum Verified { Good, Unsigned, Expired, Wrong }

public static class Signature
{
    public static readonly TimeSpan Tolerance = TimeSpan.FromMinutes(5);

    /// <summary>The bytes of a secret: base64, behind whsec_ or bare.</summary>
    public static byte[] SecretIn(string text)
    {
        var encoded = text.StartsWith("whsec_", StringComparison.Ordinal) ? text["whsec_".Length..] : text;
        var secret = Convert.FromBase64String(encoded);
        // .NET skips white space.
        var isWhole = secret.Length > 0 && Convert.ToBase64String(secret) == encoded;
        return isWhole ? secret : throw new FormatException("the secret is not base64");
    }

    /// <summary>Answer 401 to all but Good: it is tried again.</summary>
    public static Verified Verify(IEnumerable<byte[]> secrets, IHeaderDictionary headers, byte[] body, DateTimeOffset now)
    {
        if (!One(headers, "webhook-id", out var key) || !One(headers, "webhook-timestamp", out var timestamp)
            || !One(headers, "webhook-signature", out var given)) return Verified.Unsigned;
        if (timestamp.Length > 12 || !timestamp.All(char.IsAsciiDigit)) return Verified.Unsigned;
        if (Math.Abs(now.ToUnixTimeSeconds() - long.Parse(timestamp)) > Tolerance.TotalSeconds) return Verified.Expired;
        var signed = Encoding.ASCII.GetBytes($"{key}.{timestamp}.").Concat(body).ToArray();
        var signatures = given.Split(' ').Select(Encoding.ASCII.GetBytes).ToList();
        var matches = 0;
        foreach (var secret in secrets)
        {
            var wanted = Encoding.ASCII.GetBytes("v1," + Convert.ToBase64String(HMACSHA256.HashData(secret, signed)));
            matches += signatures.Count(one => CryptographicOperations.FixedTimeEquals(one, wanted));
        }
        return matches == 0 ? Verified.Wrong : Verified.Good;
    }

    // The value of a header that came once and can be printed.
    private static bool One(IHeaderDictionary headers, string name, out string value)
    {
        value = headers[name].Count == 1 ? headers[name].ToString() : "";
        return value.Length > 0 && value.All(one => one is >= ' ' and <= '~');
    }
}
