import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.retry.RetryOneTime;

/** Curator's InterProcessMutex, or a side of its InterProcessReadWriteLock. Says what it has, and lets go when it is told to. */
public class CuratorLock {
    public static void main(String[] arguments) throws Exception {
        try (CuratorFramework client = CuratorFrameworkFactory.newClient(arguments[0], new RetryOneTime(100))) {
            client.start();
            InterProcessReadWriteLock both = new InterProcessReadWriteLock(client, arguments[1]);
            InterProcessMutex lock;
            switch (arguments[3]) {
                case "read": lock = both.readLock(); break;
                case "write": lock = both.writeLock(); break;
                default: lock = new InterProcessMutex(client, arguments[1]);
            }
            long seconds = arguments[2].equals("wait") ? 60 : 0;
            if (lock.acquire(seconds, TimeUnit.SECONDS)) {
                System.out.println("held");
                System.in.read();
                lock.release();
                System.out.println("released");
            } else {
                System.out.println("busy");
            }
        }
    }
}
