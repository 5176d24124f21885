package io.aiven.kafka.tieredstorage.iceberg;

import org.apache.iceberg.catalog.Catalog;

/** Stands in for the plugin's class, which needs more of Iceberg. */
public final class NamespaceAwareCachingCatalog {
    private NamespaceAwareCachingCatalog() {
    }

    public static Catalog wrap(Catalog catalog, long expirationMs) {
        throw new UnsupportedOperationException();
    }
}
