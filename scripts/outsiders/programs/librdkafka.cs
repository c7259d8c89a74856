/* librdkafka from C#, by P/Invoke, and the fault verbs over HTTP.
 *
 *     mono program.exe BOOTSTRAP PREFIX FEATURE...
 *
 * It takes what .NET 8 and Mono both have. It was run on Mono alone. Confluent.Kafka, the usual
 * client of .NET, calls the same library. speaking.py says what the lines mean, topics.py and
 * groups.py what there is.
 */

using System;
using System.Collections.Generic;
using System.Linq;
using System.Net.Http;
using System.Runtime.InteropServices;
using System.Text;

/// <summary>A feature that this program does not try; the text says why.</summary>
class AbsentException : Exception
{
    public AbsentException(string reason) : base(reason) { }
}

static class Example
{
    const int WrittenRecords = 10;
    const int FilledPartitions = 3;
    const int FilledRecords = 20;
    const int PatienceMillis = 15000;

    static string bootstrap;
    static string prefix;

    static string TopicOf(string feature) => $"{prefix}-{feature}";

    static void Main(string[] arguments)
    {
        bootstrap = arguments[0];
        prefix = arguments[1];
        Say($"\"version\": {Quoted(Librdkafka.Version)}");
        foreach (string feature in arguments.Skip(2))
        {
            Say($"\"feature\": {Quoted(feature)}{Tried(feature)}");
        }
    }

    /// <summary>The end of the feature's line: nothing when it works.</summary>
    static string Tried(string feature)
    {
        try
        {
            FunctionOf(feature)(feature);
        }
        catch (AbsentException absent)
        {
            return $", \"absent\": {Quoted(absent.Message)}";
        }
        catch (Exception error)
        {
            return $", \"error\": {Quoted($"{error.GetType().Name}: {error.Message}")}";
        }
        return "";
    }

    static Action<string> FunctionOf(string feature)
    {
        string[] words = feature.Split('-');
        if (words[0] == "produce")
        {
            return name => Produce(name, new Dictionary<string, string> { ["compression.codec"] = words[1] });
        }
        if (words[0] == "acks")
        {
            return name => Produce(name, new Dictionary<string, string> { ["acks"] = words[1] });
        }
        switch (feature)
        {
            case "idempotent":
                return name => Produce(name, Idempotent());
            case "consume":
                return Consume;
            case "lost-answer":
                return LostAnswer;
            default:
                throw new AbsentException("the example produces, and reads by assignment");
        }
    }

    static Dictionary<string, string> Idempotent()
    {
        return new Dictionary<string, string> { ["enable.idempotence"] = "true", ["acks"] = "all" };
    }

    static void Produce(string feature, Dictionary<string, string> settings)
    {
        settings["delivery.timeout.ms"] = PatienceMillis.ToString();
        using (var producer = new Producer(Settings(settings)))
        {
            for (int number = 0; number < WrittenRecords; number++)
            {
                producer.Send(TopicOf(feature), $"{feature}-{number}");
            }
            producer.WaitForAll(WrittenRecords, PatienceMillis);
        }
    }

    static void Consume(string feature)
    {
        using (var consumer = new Consumer(Settings(new Dictionary<string, string>
        {
            ["group.id"] = TopicOf(feature),
            ["enable.auto.commit"] = "false",
        })))
        {
            var wanted = new List<string>();
            for (int partition = 0; partition < FilledPartitions; partition++)
            {
                wanted.AddRange(Enumerable.Range(0, FilledRecords).Select(offset => $"{partition}:{offset}"));
            }
            consumer.AssignFromTheBeginning($"{prefix}-filled", FilledPartitions);
            List<string> found = consumer.Read(wanted.Count, PatienceMillis);
            Expect(string.Join(" ", found.OrderBy(each => each, StringComparer.Ordinal)),
                string.Join(" ", wanted.OrderBy(each => each, StringComparer.Ordinal)), "records");
        }
    }

    /// <summary>
    /// The brokers store a record and lose the acknowledgement. The producer must send again, and
    /// each record must be there once. Each broker that is asked takes the fault; with one id they
    /// count together. A fault that was not used fails.
    /// </summary>
    static void LostAnswer(string feature)
    {
        string topic = TopicOf(feature);
        string id = topic.Replace('.', '-');
        AskAll(HttpMethod.Post, "/faults",
            "{" + $"\"id\": {Quoted(id)}, \"do\": \"drop_response\", \"on\": \"Produce\", \"topic\": {Quoted(topic)}, \"times\": 1" + "}",
            201, "\"used\": 0");
        Dictionary<string, string> settings = Idempotent();
        settings["request.timeout.ms"] = "1000";
        settings["socket.timeout.ms"] = "2000";
        Produce(feature, settings);
        AskAll(HttpMethod.Delete, "/faults/" + id, null, 200, "\"used\": 1");
    }

    static void AskAll(HttpMethod method, string path, string body, int status, string holds)
    {
        using (var http = new HttpClient())
        {
            foreach (string admin in Environment.GetEnvironmentVariable("RAFTLOG_ADMIN").Split(','))
            {
                var request = new HttpRequestMessage(method, $"http://{admin}{path}");
                if (body != null)
                {
                    request.Content = new StringContent(body, Encoding.UTF8, "application/json");
                }
                HttpResponseMessage answer = http.SendAsync(request).Result;
                string text = answer.Content.ReadAsStringAsync().Result;
                if ((int)answer.StatusCode != status || !text.Contains(holds))
                {
                    throw new InvalidOperationException($"{(int)answer.StatusCode} {text}");
                }
            }
        }
    }

    static Dictionary<string, string> Settings(Dictionary<string, string> more)
    {
        more["bootstrap.servers"] = bootstrap;
        more["client.id"] = prefix;
        more["log_level"] = "0";
        return more;
    }

    static void Expect(string found, string wanted, string what)
    {
        if (found != wanted)
        {
            throw new InvalidOperationException($"{what}: expected {wanted}, got {found}");
        }
    }

    static void Say(string fields)
    {
        Console.WriteLine("{" + fields + "}");
        Console.Out.Flush();
    }

    static string Quoted(string text)
    {
        var quoted = new StringBuilder("\"");
        foreach (char each in text)
        {
            bool plain = each >= ' ' && each < 127 && each != '"' && each != '\\';
            quoted.Append(plain ? each.ToString() : $"\\u{(int)each:x4}");
        }
        return quoted.Append('"').ToString();
    }
}

/// <summary>What producers and consumers share: a handle of librdkafka.</summary>
abstract class Handle : IDisposable
{
    protected readonly IntPtr handle;

    protected Handle(int type, Dictionary<string, string> settings)
    {
        IntPtr conf = Librdkafka.rd_kafka_conf_new();
        var error = new StringBuilder(512);
        foreach (KeyValuePair<string, string> each in settings)
        {
            if (Librdkafka.rd_kafka_conf_set(conf, each.Key, each.Value, error, (UIntPtr)error.Capacity) != 0)
            {
                throw new ArgumentException(error.ToString());
            }
        }
        Librdkafka.rd_kafka_conf_set_events(conf, Librdkafka.EventDeliveryReports);
        handle = Librdkafka.rd_kafka_new(type, conf, error, (UIntPtr)error.Capacity);
        if (handle == IntPtr.Zero)
        {
            throw new InvalidOperationException(error.ToString());
        }
    }

    public virtual void Dispose() => Librdkafka.rd_kafka_destroy(handle);
}

/// <summary>Sends records, and waits for the answer to each.</summary>
sealed class Producer : Handle
{
    readonly IntPtr reports;

    public Producer(Dictionary<string, string> settings) : base(Librdkafka.ProducerType, settings)
    {
        reports = Librdkafka.rd_kafka_queue_get_main(handle);
    }

    public void Send(string topic, string value)
    {
        byte[] bytes = Encoding.UTF8.GetBytes(value);
        IntPtr known = Librdkafka.rd_kafka_topic_new(handle, topic, IntPtr.Zero);
        try
        {
            int failed = Librdkafka.rd_kafka_produce(known, 0, Librdkafka.CopyTheValue, bytes,
                (UIntPtr)bytes.Length, null, UIntPtr.Zero, IntPtr.Zero);
            if (failed != 0)
            {
                throw new InvalidOperationException(Librdkafka.Text(Librdkafka.rd_kafka_last_error()));
            }
        }
        finally
        {
            Librdkafka.rd_kafka_topic_destroy(known);
        }
    }

    public void WaitForAll(int count, int millis)
    {
        DateTime end = DateTime.UtcNow.AddMilliseconds(millis);
        while (count > 0)
        {
            if (DateTime.UtcNow > end)
            {
                throw new TimeoutException($"no answer to {count} records");
            }
            IntPtr told = Librdkafka.rd_kafka_queue_poll(reports, 100);
            try
            {
                IntPtr next;
                while (told != IntPtr.Zero && (next = Librdkafka.rd_kafka_event_message_next(told)) != IntPtr.Zero)
                {
                    Message message = Marshal.PtrToStructure<Message>(next);
                    if (message.Error != 0)
                    {
                        throw new InvalidOperationException(Librdkafka.Text(message.Error));
                    }
                    count--;
                }
            }
            finally
            {
                Librdkafka.rd_kafka_event_destroy(told);
            }
        }
    }

    public override void Dispose()
    {
        Librdkafka.rd_kafka_queue_destroy(reports);
        base.Dispose();
    }
}

/// <summary>Reads the partitions that it is given.</summary>
sealed class Consumer : Handle
{
    public Consumer(Dictionary<string, string> settings) : base(Librdkafka.ConsumerType, settings)
    {
        Librdkafka.rd_kafka_poll_set_consumer(handle);
    }

    public void AssignFromTheBeginning(string topic, int partitions)
    {
        IntPtr list = Librdkafka.rd_kafka_topic_partition_list_new(partitions);
        for (int partition = 0; partition < partitions; partition++)
        {
            Librdkafka.rd_kafka_topic_partition_list_add(list, topic, partition);
            Librdkafka.rd_kafka_topic_partition_list_set_offset(list, topic, partition, Librdkafka.Beginning);
        }
        int error = Librdkafka.rd_kafka_assign(handle, list);
        Librdkafka.rd_kafka_topic_partition_list_destroy(list);
        if (error != 0)
        {
            throw new InvalidOperationException(Librdkafka.Text(error));
        }
    }

    public List<string> Read(int count, int millis)
    {
        var found = new List<string>();
        DateTime end = DateTime.UtcNow.AddMilliseconds(millis);
        while (found.Count < count)
        {
            if (DateTime.UtcNow > end)
            {
                throw new TimeoutException($"{found.Count} of {count} records");
            }
            IntPtr next = Librdkafka.rd_kafka_consumer_poll(handle, 100);
            if (next == IntPtr.Zero)
            {
                continue;
            }
            Message message = Marshal.PtrToStructure<Message>(next);
            try
            {
                if (message.Error != 0)
                {
                    throw new InvalidOperationException(Librdkafka.Text(message.Error));
                }
                var bytes = new byte[(int)message.Length];
                Marshal.Copy(message.Value, bytes, 0, bytes.Length);
                found.Add(Encoding.UTF8.GetString(bytes));
            }
            finally
            {
                Librdkafka.rd_kafka_message_destroy(next);
            }
        }
        return found;
    }

    public override void Dispose()
    {
        Librdkafka.rd_kafka_consumer_close(handle);
        base.Dispose();
    }
}

/// <summary>rd_kafka_message_t, as rdkafka.h has it.</summary>
[StructLayout(LayoutKind.Sequential)]
struct Message
{
    public int Error;
    public IntPtr Topic;
    public int Partition;
    public IntPtr Value;
    public UIntPtr Length;
    public IntPtr Key;
    public UIntPtr KeyLength;
    public long Offset;
    public IntPtr Private;
}

/// <summary>The functions of rdkafka.h that are called.</summary>
static class Librdkafka
{
    public const int ProducerType = 0;
    public const int ConsumerType = 1;
    public const int EventDeliveryReports = 1;
    public const int CopyTheValue = 2;
    public const long Beginning = -2;
    const string Library = "librdkafka.so.1";

    public static string Version => Marshal.PtrToStringAnsi(rd_kafka_version_str());

    public static string Text(int error) => Marshal.PtrToStringAnsi(rd_kafka_err2str(error));

    [DllImport(Library)] static extern IntPtr rd_kafka_version_str();
    [DllImport(Library)] static extern IntPtr rd_kafka_err2str(int error);
    [DllImport(Library)] public static extern int rd_kafka_last_error();
    [DllImport(Library)] public static extern IntPtr rd_kafka_conf_new();
    [DllImport(Library)] public static extern int rd_kafka_conf_set(IntPtr conf, string name, string value, StringBuilder error, UIntPtr size);
    [DllImport(Library)] public static extern void rd_kafka_conf_set_events(IntPtr conf, int events);
    [DllImport(Library)] public static extern IntPtr rd_kafka_new(int type, IntPtr conf, StringBuilder error, UIntPtr size);
    [DllImport(Library)] public static extern void rd_kafka_destroy(IntPtr handle);
    [DllImport(Library)] public static extern IntPtr rd_kafka_topic_new(IntPtr handle, string topic, IntPtr conf);
    [DllImport(Library)] public static extern void rd_kafka_topic_destroy(IntPtr topic);
    [DllImport(Library)] public static extern int rd_kafka_produce(IntPtr topic, int partition, int flags, byte[] value, UIntPtr length, byte[] key, UIntPtr keyLength, IntPtr opaque);
    [DllImport(Library)] public static extern IntPtr rd_kafka_queue_get_main(IntPtr handle);
    [DllImport(Library)] public static extern void rd_kafka_queue_destroy(IntPtr queue);
    [DllImport(Library)] public static extern IntPtr rd_kafka_queue_poll(IntPtr queue, int millis);
    [DllImport(Library)] public static extern IntPtr rd_kafka_event_message_next(IntPtr told);
    [DllImport(Library)] public static extern void rd_kafka_event_destroy(IntPtr told);
    [DllImport(Library)] public static extern int rd_kafka_poll_set_consumer(IntPtr handle);
    [DllImport(Library)] public static extern IntPtr rd_kafka_topic_partition_list_new(int size);
    [DllImport(Library)] public static extern IntPtr rd_kafka_topic_partition_list_add(IntPtr list, string topic, int partition);
    [DllImport(Library)] public static extern int rd_kafka_topic_partition_list_set_offset(IntPtr list, string topic, int partition, long offset);
    [DllImport(Library)] public static extern void rd_kafka_topic_partition_list_destroy(IntPtr list);
    [DllImport(Library)] public static extern int rd_kafka_assign(IntPtr handle, IntPtr list);
    [DllImport(Library)] public static extern IntPtr rd_kafka_consumer_poll(IntPtr handle, int millis);
    [DllImport(Library)] public static extern void rd_kafka_message_destroy(IntPtr message);
    [DllImport(Library)] public static extern int rd_kafka_consumer_close(IntPtr handle);
}
