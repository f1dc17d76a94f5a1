"""A product page with Django's object mapper. Freshet is an address in DATABASES, and nothing else."""

import os

import django
from django.conf import settings

settings.configure(
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "HOST": os.environ["PGHOST"],  # Freshet's address instead of the database's
            "PORT": os.environ["PGPORT"],
            "USER": os.environ["PGUSER"],
            "PASSWORD": os.environ["PGPASSWORD"],
            "NAME": os.environ["PGDATABASE"],
        }
    }
)
django.setup()

from django.db import models  # noqa: E402
from django.db.models import Avg, Count, F  # noqa: E402


class Product(models.Model):
    id = models.IntegerField(primary_key=True)
    name = models.TextField()
    price = models.IntegerField()

    class Meta:
        app_label, db_table, managed = "shop", "product", False


class Review(models.Model):
    id = models.IntegerField(primary_key=True)
    product = models.ForeignKey(Product, models.CASCADE)
    stars = models.IntegerField()

    class Meta:
        app_label, db_table, managed = "shop", "review", False


def page(number):
    product = Product.objects.get(pk=number)
    reviews = Review.objects.filter(product=product).aggregate(count=Count("id"), stars=Avg("stars"))
    return f"{product.name}: {reviews['count']} reviews, {reviews['stars']:.1f} stars"


# The first reads of each page are answered by the database, the later ones by the cache.
for visit in range(20):
    pages = [page(number) for number in range(1, 6)]
print("\n".join(pages))

# A commit invalidates the page that it changes: the next read sees it, in this and in every other session.
before = Product.objects.get(pk=5).price
Product.objects.filter(pk=5).update(price=F("price") + 1)
print("the new price is read:", Product.objects.get(pk=5).price == before + 1)
